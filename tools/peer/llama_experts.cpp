// The pass over experts of `cohort bench experts` and the same graph for llama.cpp's CPU backend (gate and up by
// ggml_mul_mat_id, SwiGLU, down, weighted sum), in one process on the same weights, inputs and routes. Both are timed
// by the processor time of the process, so that other programs on the machine disturb them less; medians of the
// repeats. Weights go to llama.cpp's repacked buffers where it has such for the type, as its loader does.
//
// llama.cpp is no dependency of this project: build it yourself with the processor's instruction sets, then
//   g++ -O2 -std=c++20 -DFMT_HEADER_ONLY llama_experts.cpp -I src -I include -I $LLAMA/ggml/include \
//       build/release/libcohort_core.a -L $LLAMA/build/bin -lggml -lggml-cpu -lggml-base
//   ./a.out THREADS REPEATS ROWS[,ROWS..] SHARE TYPE [TYPE..]          SHARE below 0: uniformly random experts
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "measure/expert_lab.h"
#include "measure/synth_blocks.h"

namespace {

constexpr int64_t kLayers = 2;

double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// llama.cpp's weights of all layers.
struct Peer {
  ggml_backend_t backend;
  ggml_context* context;
  std::vector<ggml_tensor*> weights;  // gate, up, down of each layer
  bool repacked = false;

  Peer(const cohort::ExpertWeights& ours, int threads) : backend(ggml_backend_cpu_init()) {
    ggml_backend_cpu_set_n_threads(backend, threads);
    context = ggml_init({size_t{1} << 20, nullptr, true});
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    const auto get_extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    for (int64_t l = 0; l < kLayers; ++l) {
      for (const cohort::Weight* w : {ours.layer(l).gate, ours.layer(l).up, ours.layer(l).down}) {
        ggml_tensor* t = ggml_new_tensor_3d(context, static_cast<ggml_type>(w->type), w->cols, w->rows, w->experts);
        ggml_tensor* x = ggml_new_tensor_3d(context, GGML_TYPE_F32, w->cols, 1, 1);
        ggml_tensor* ids = ggml_new_tensor_2d(context, GGML_TYPE_I32, 1, 1);
        ggml_tensor* product = ggml_mul_mat_id(context, t, x, ids);
        ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
        for (auto* extra = get_extra != nullptr ? get_extra(device) : nullptr; extra != nullptr && *extra != nullptr;
             ++extra) {
          t->buffer = ggml_backend_buft_alloc_buffer(*extra, 0);
          const bool fits = ggml_backend_dev_supports_op(device, product);
          ggml_backend_buffer_free(t->buffer);
          t->buffer = nullptr;
          if (!fits) continue;
          type = *extra;
          repacked = true;
          break;
        }
        ggml_backend_buffer_t buffer =
            ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, t) + 4096);
        ggml_tallocr allocator = ggml_tallocr_new(buffer);
        ggml_tallocr_alloc(&allocator, t);
        ggml_backend_tensor_set(t, w->slices[0], 0, ggml_nbytes(t));
        weights.push_back(t);
      }
    }
  }

  /// Processor seconds of one pass over a layer.
  double run(int64_t layer, const std::vector<float>& x, const std::vector<int32_t>& routes,
             const std::vector<float>& slots, std::vector<float>& y, int64_t top_k) {
    ggml_tensor** w = weights.data() + 3 * layer;
    const int64_t hidden = w[0]->ne[0], rows = static_cast<int64_t>(x.size()) / hidden;
    ggml_context* g = ggml_init({size_t{4} << 20, nullptr, true});
    ggml_tensor* in = ggml_new_tensor_3d(g, GGML_TYPE_F32, hidden, 1, rows);
    ggml_tensor* ids = ggml_new_tensor_2d(g, GGML_TYPE_I32, top_k, rows);
    ggml_tensor* weight = ggml_new_tensor_3d(g, GGML_TYPE_F32, 1, top_k, rows);
    for (ggml_tensor* t : {in, ids, weight}) ggml_set_input(t);
    ggml_tensor* h = ggml_swiglu_split(g, ggml_mul_mat_id(g, w[0], in, ids), ggml_mul_mat_id(g, w[1], in, ids));
    ggml_tensor* down = ggml_mul(g, ggml_mul_mat_id(g, w[2], h, ids), weight);
    ggml_tensor* sum = nullptr;
    for (int64_t k = 0; k < top_k; ++k) {
      ggml_tensor* one = ggml_view_2d(g, down, hidden, rows, down->nb[2], static_cast<size_t>(k) * down->nb[1]);
      sum = sum == nullptr ? one : ggml_add(g, sum, one);
    }
    ggml_set_output(sum);
    ggml_cgraph* graph = ggml_new_graph(g);
    ggml_build_forward_expand(graph, sum);
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(allocator, graph);
    ggml_backend_tensor_set(in, x.data(), 0, ggml_nbytes(in));
    ggml_backend_tensor_set(ids, routes.data(), 0, ggml_nbytes(ids));
    ggml_backend_tensor_set(weight, slots.data(), 0, ggml_nbytes(weight));
    const double start = now();
    ggml_backend_graph_compute(backend, graph);
    const double seconds = now() - start;
    ggml_backend_tensor_get(sum, y.data(), 0, ggml_nbytes(sum));
    ggml_gallocr_free(allocator);
    ggml_free(g);
    return seconds;
  }

  ~Peer() {
    for (ggml_tensor* t : weights) ggml_backend_buffer_free(t->buffer);
    ggml_free(context);
    ggml_backend_free(backend);
  }
};

void compare(const std::string& type, int threads, int repeats, const std::vector<int>& tokens, double share) {
  cohort::ExpertShape shape;
  shape.gate_up = shape.down = type;
  shape.layers = kLayers;
  const auto ours = cohort::ExpertWeights::create(shape, 1, threads);
  if (!ours) return void(std::fprintf(stderr, "%s\n", ours.error().message.c_str()));
  auto runner = cohort::ExpertRunner::create(*ours, cohort::best_isa(), threads);
  if (!runner) return void(std::fprintf(stderr, "%s\n", runner.error().message.c_str()));
  Peer peer(*ours, threads);
  uint64_t seed = 1;
  for (const int rows : tokens) {
    std::vector<float> x(static_cast<size_t>(rows * shape.hidden)), a(x.size()), b(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = 2 * (static_cast<float>(cohort::random_word(7, i) >> 40) * 0x1p-24F - 0.5F);
    std::vector<float> slots(static_cast<size_t>(rows * shape.top_k), 0.125F);
    std::vector<double> mine, theirs;
    double error = 0, size = 0;
    for (int r = 0; r <= repeats; ++r) {
      double sums[2] = {0, 0};
      for (int64_t l = 0; l < kLayers; ++l) {
        const auto routes = cohort::routes_with_share(rows, shape.experts, shape.top_k, share, ++seed);
        const double start = now();
        (*runner)->run(l, x, routes, slots, a);
        sums[0] += now() - start;
        const auto other = cohort::routes_with_share(rows, shape.experts, shape.top_k, share, ++seed);
        sums[1] += peer.run(l, x, r == 0 ? routes : other, slots, b, shape.top_k);
        for (size_t i = 0; r == 0 && i < a.size(); ++i) {
          error += (a[i] - b[i]) * (a[i] - b[i]);
          size += a[i] * a[i];
        }
      }
      if (r == 0) continue;
      mine.push_back(sums[0] / kLayers);
      theirs.push_back(sums[1] / kLayers);
    }
    std::printf("%s,%s,%d,%d,%.0f,%.0f,%.2f,%.4f\n", type.c_str(), peer.repacked ? "repacked" : "plain", threads, rows,
                median(mine) * 1e6, median(theirs) * 1e6, median(theirs) / median(mine), std::sqrt(error / size));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return std::fprintf(stderr, "usage: THREADS REPEATS ROWS[,ROWS..] SHARE TYPE [TYPE..]\n"), 2;
  std::vector<int> tokens;
  for (const char* at = argv[3]; at != nullptr; at = std::strchr(at, ',')) {
    at += *at == ',' ? 1 : 0;
    tokens.push_back(std::atoi(at));
  }
  std::printf("type,llama.cpp,threads,rows,cohort us,llama.cpp us,ratio,relative difference\n");
  for (int i = 5; i < argc; ++i) compare(argv[i], std::atoi(argv[1]), std::atoi(argv[2]), tokens, std::atof(argv[4]));
}
