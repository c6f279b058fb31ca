// The ladder of `cohort bench steps` for llama.cpp, over its C API, so that both are timed by the same rules: prompts
// and fed tokens are random and differ between streams, every decode row asks for its logits, nothing is sampled, one
// repeat warms up and the median of the others counts. Prints rows of docs/perf/cpu-steps.csv.
//
// llama.cpp is no dependency of this project: build it yourself with the processor's instruction sets and compile this
// against it.
//   cmake -B build -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama
//   g++ -O2 -std=c++20 llama_steps.cpp -I include -I ggml/include -L build/bin -lllama -lggml -lggml-base
//   ./a.out FILE.gguf MODEL TYPE THREADS PROMPT GENERATED REPEATS STREAMS[,STREAMS..] [q8_0]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void add(llama_batch& batch, llama_token token, int position, int stream, bool logits) {
  const int i = batch.n_tokens++;
  batch.token[i] = token;
  batch.pos[i] = position;
  batch.n_seq_id[i] = 1;
  batch.seq_id[i][0] = stream;
  batch.logits[i] = logits ? 1 : 0;
}

void decode(llama_context* context, const llama_batch& batch) {
  if (llama_decode(context, batch) == 0) return;
  std::fprintf(stderr, "llama_decode failed\n");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9) {
    std::fprintf(stderr, "usage: %s FILE MODEL TYPE THREADS PROMPT GENERATED REPEATS STREAMS[,..] [q8_0]\n", argv[0]);
    return 2;
  }
  const int threads = std::atoi(argv[4]), prompt = std::atoi(argv[5]), generated = std::atoi(argv[6]);
  const int repeats = std::atoi(argv[7]);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  ggml_backend_load_all();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return 1;
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (char* list = std::strtok(argv[8], ","); list != nullptr; list = std::strtok(nullptr, ",")) {
    const int streams = std::atoi(list);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(streams * (prompt + generated));
    params.n_batch = static_cast<uint32_t>(std::max(2048, streams * prompt));
    params.n_ubatch = 512;
    params.n_seq_max = static_cast<uint32_t>(streams);
    params.n_threads = params.n_threads_batch = threads;
    if (argc > 9 && std::strcmp(argv[9], "q8_0") == 0) params.type_k = params.type_v = GGML_TYPE_Q8_0;
    llama_context* context = llama_init_from_model(model, params);
    if (context == nullptr) return 1;
    llama_batch batch = llama_batch_init(static_cast<int>(params.n_batch), 0, 1);
    std::vector<double> prefills, decodes;
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      std::mt19937 random(static_cast<unsigned>(repeat + 1));
      llama_memory_t memory = llama_get_memory(context);
      // Reading many prompts takes a minute: from 8 streams on it is timed once, after the warm-up (from 16 on, where
      // it takes 4 to 8 seconds, it is the warm-up), and later repeats only forget what they generated.
      const bool once = streams >= 16;
      if (streams < 8 || repeat < (once ? 1 : 2)) {
        llama_memory_clear(memory, true);
        batch.n_tokens = 0;
        for (int s = 0; s < streams; ++s) {
          for (int p = 0; p < prompt; ++p)
            add(batch, static_cast<llama_token>(random() % static_cast<unsigned>(vocabulary)), p, s, p + 1 == prompt);
        }
        const double start = now();
        decode(context, batch);
        llama_synchronize(context);
        if (repeat > 0 || once) prefills.push_back(now() - start);
      } else {
        llama_memory_seq_rm(memory, -1, prompt, -1);
      }
      const double start = now();
      for (int i = 0; i < generated; ++i) {
        batch.n_tokens = 0;
        for (int s = 0; s < streams; ++s)
          add(batch, static_cast<llama_token>(random() % static_cast<unsigned>(vocabulary)), prompt + i, s, true);
        decode(context, batch);
        llama_synchronize(context);
      }
      if (repeat == 0) continue;
      decodes.push_back(now() - start);
    }
    const double p = median(prefills), d = median(decodes);
    const double spread =
        (*std::max_element(decodes.begin(), decodes.end()) - *std::min_element(decodes.begin(), decodes.end())) / d;
    std::printf("\"cpu, %d threads\",%s,%s,llama.cpp,%d,%d,%d,%d,%.6f,%.2f,%.6f,%.2f,%.6f,%.2f,%.4f,,,,\n", threads,
                argv[2], argv[3], prompt, generated, streams, streams * (prompt + generated), p, streams * prompt / p,
                d, streams * generated / d, p + d, streams * (prompt + generated) / (p + d), spread);
    std::fflush(stdout);
    llama_batch_free(batch);
    llama_free(context);
  }
  llama_model_free(model);
  return 0;
}
