#include "kernels/cpu/backend.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "base/result.h"
#include "base/thread_team.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/plan.h"
#include "kv/cache.h"
#include "moe/groups.h"

namespace cohort {
namespace cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rows per job of a row stage once there are many of them: fewer grabs, and rows of one page stay with one thread.
constexpr int64_t kManyRows = 128;
constexpr int64_t kRowsPerJob = 8;
// Bytes of weights that one job of a linear stage reads, as in experts.cpp.
constexpr int64_t kLinearJobBytes = int64_t{48} << 10;

/// A part of a linear stage: tiles of one matrix times chunks of rows.
struct LinearJob {
  const LinearItem* item;
  int64_t first_tile, last_tile;
  int32_t first_chunk, last_chunk;
};

/// 64-byte aligned floats that only grow.
class FloatBuffer {
 public:
  float* reserve(size_t floats) {
    if (floats > size_) {
      memory_.reset(static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
      if (!memory_) throw std::bad_alloc();
      size_ = floats;
    }
    return memory_.get();
  }
  float* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  size_t size_ = 0;
};

int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

class Executor final : public CpuBackend {
 public:
  Executor(const Program& program, const CpuOptions& options, int threads)
      : program_(program),
        isa_(options.isa),
        team_(threads, options.pin),
        linear_(linear_kernels(options.isa)),
        elementwise_(elementwise_kernels(options.isa)),
        attention_(attention_kernels(options.isa)),
        experts_(linear_, elementwise_, threads),
        thread_scratch_(static_cast<size_t>(threads)),
        busy_(static_cast<size_t>(threads)) {
    experts_.set_tuning(options.tuning);
  }

  Expected<void> load(const PackProgress& progress, const PackedCache& cache) {
    COHORT_ASSIGN(weights_, WeightMemory::create(program_, team_, progress, cache));
    make_plan(false);
    for (const Stage& stage : plan_.stages) {
      if (stage.kind != Stage::Kind::experts) continue;
      const auto& action = std::get<op::Experts>(stage.op->action);
      const ExpertMatrices matrices = {&weights_.matrix(action.gate), &weights_.matrix(action.up),
                                       &weights_.matrix(action.down), action.activation};
      if (matrices.down->quantised && action.gate->rows % kBlockValues != 0) {
        return fail(ErrorCode::corrupt, "{}: experts are {} wide; a quantised {} needs a multiple of {}",
                    stage.op->name, action.gate->rows, action.down->name, kBlockValues);
      }
      expert_matrices_.emplace(stage.op, matrices);
    }
    return {};
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} thread{}{}", isa_name(isa_), team_.size(), team_.size() == 1 ? "" : "s",
                       weights_.mapped() ? ", packed file" : "");
  }
  Expected<void> allocate_cache(TensorType type, int32_t pages) override {
    COHORT_ASSIGN(cache_, KvCache::create(program_.cache_layers, type, pages));
    return {};
  }
  void copy_page(int32_t from, int32_t to) override { cache_.copy_page(from, to); }
  Expected<void> observe(MatrixInputObserver* observer) override {
    observer_ = observer;
    make_plan(observer != nullptr);
    return {};
  }
  void set_profile(StepProfile* profile) override { profile_ = profile; }
  std::string plan_text() const override { return to_text(program_, plan_); }
  size_t packed_bytes() const override { return weights_.bytes(); }
  int threads() const override { return team_.size(); }
  ThreadTeam* team() override { return &team_; }

  Expected<StepStats> run(const Batch& batch, std::span<float> logits) override {
    const auto start = Clock::now();
    begin(batch, logits);
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const Stage& stage = plan_.stages[i];
      const int64_t rows = stage.extent == Extent::sampled ? sampled_ : rows_;
      if (rows == 0) continue;
      stage_ = i;
      switch (stage.kind) {
        case Stage::Kind::rows:
          run_rows(stage, rows);
          break;
        case Stage::Kind::linear:
          if (observer_ != nullptr) show_linears(stage, rows);
          run_linears(stage, rows);
          break;
        case Stage::Kind::attend:
          run_attend(stage);
          break;
        case Stage::Kind::experts:
          run_experts(stage, rows);
          break;
      }
    }
    if (moe_layers_ > 0) stats_.distinct_experts /= moe_layers_;
    stats_.seconds = seconds_since(start);
    if (profile_ != nullptr) {
      profile_->seconds += stats_.seconds;
      ++profile_->steps;
    }
    return stats_;
  }

 private:
  void make_plan(bool keep_inputs) {
    plan_ = compile(program_, weights_, keep_inputs);
    floats_.resize(plan_.float_widths.size());
    quants_.clear();  // sizes may have changed
    quants_.resize(plan_.quants.size());
    routes_.resize(plan_.values.size());
  }

  // --- values ---------------------------------------------------------------------------------------------------
  const ValuePlace& place(ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  float* floats(ValueId id, int64_t row) {
    const ValuePlace& p = place(id);
    float* base = p.floats == kCallersBuffer ? logits_.data() : floats_[static_cast<size_t>(p.floats)].data();
    return base + row * p.width;
  }
  const ActivationBuffer& quant(ValueId id) const { return quants_[static_cast<size_t>(place(id).quant)]; }
  struct Routes {
    std::vector<int32_t> experts;
    std::vector<float> weights;
    RouteGroups groups;
  };

  void begin(const Batch& batch, std::span<float> logits) {
    batch_ = &batch;
    logits_ = logits;
    rows_ = batch.rows();
    sampled_ = static_cast<int64_t>(batch.sampled_rows.size());
    stats_ = {};
    stats_.rows = rows_;
    moe_layers_ = 0;
    for (size_t i = 0; i < floats_.size(); ++i) floats_[i].reserve(static_cast<size_t>(rows_ * plan_.float_widths[i]));
    for (size_t i = 0; i < quants_.size(); ++i) quants_[i].reserve(rows_, plan_.quants[i].width, plan_.quants[i].sums);
    for (size_t v = 0; v < plan_.values.size(); ++v) {
      if (plan_.values[v].kind != ValueKind::routes) continue;
      const auto count = static_cast<size_t>(rows_ * plan_.values[v].width);
      routes_[v].experts.resize(count);
      routes_[v].weights.resize(count);
    }
    sequence_of_.resize(static_cast<size_t>(rows_));
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const SequenceRows& sequence = batch.sequences[s];
      std::fill_n(sequence_of_.begin() + sequence.first_row, sequence.rows, static_cast<int32_t>(s));
    }
    attention_plans_.clear();
    if (profile_ != nullptr) {
      profile_->ops.resize(program_.ops.size());
      profile_->stages.resize(plan_.stages.size());
    }
  }

  // --- running jobs, with or without a clock ----------------------------------------------------------------------

  /// Runs `job(index, thread)`; `op_of(index)` says whose time it is.
  template <class Job, class OpOf>
  void run_jobs(int64_t count, Job&& job, OpOf&& op_of) {
    if (profile_ == nullptr) {
      team_.run(count, job);
      return;
    }
    const auto start = Clock::now();
    for (auto& busy : busy_) {
      busy.seconds = 0;
      busy.ops.resize(program_.ops.size());
    }
    team_.run(count, [&](int64_t index, int thread) {
      const auto job_start = Clock::now();
      job(index, thread);
      const double seconds = seconds_since(job_start);
      Busy& busy = busy_[static_cast<size_t>(thread)];
      busy.seconds += seconds;
      if (const Op* op = op_of(index)) add_time(thread, op, seconds);
    });
    StageProfile& stage = profile_->stages[stage_];
    const double wall = seconds_since(start);
    stage.seconds += wall;
    stage.wait_seconds.resize(busy_.size());
    for (size_t t = 0; t < busy_.size(); ++t) {
      stage.wait_seconds[t] += wall - busy_[t].seconds;
      for (size_t i = 0; i < busy_[t].ops.size(); ++i) {
        profile_->ops[i].busy_seconds += busy_[t].ops[i].seconds;
        profile_->ops[i].jobs += busy_[t].ops[i].jobs;
        busy_[t].ops[i] = {};
      }
    }
  }
  void add_time(int thread, const Op* op, double seconds) {
    auto& entry = busy_[static_cast<size_t>(thread)].ops[index_of(op)];
    entry.seconds += seconds;
    ++entry.jobs;
  }
  size_t index_of(const Op* op) const { return static_cast<size_t>(op - program_.ops.data()); }
  void count_bytes(const Op* op, double bytes) {
    stats_.bytes += bytes;
    if (profile_ != nullptr) profile_->ops[index_of(op)].bytes += bytes;
  }

  // --- row stages -------------------------------------------------------------------------------------------------
  void run_rows(const Stage& stage, int64_t rows) {
    const int64_t per_job = rows >= kManyRows ? kRowsPerJob : 1;
    run_jobs((rows + per_job - 1) / per_job,
             [&](int64_t job, int thread) {
               for (int64_t row = job * per_job; row < std::min((job + 1) * per_job, rows); ++row) {
                 for (const RowItem& item : stage.rows) {
                   if (profile_ == nullptr) {
                     run_item(item, row, rows);
                     continue;
                   }
                   const auto start = Clock::now();
                   run_item(item, row, rows);
                   add_time(thread, item.op, seconds_since(start));
                 }
               }
             },
             [](int64_t) -> const Op* { return nullptr; });
  }

  void run_item(const RowItem& item, int64_t row, int64_t rows) {
    const Op& op = *item.op;
    switch (item.kind) {
      case RowItem::Kind::embed: {
        const auto& embed = std::get<op::Embed>(op.action);
        const Weight& table = *embed.table;
        const auto token = static_cast<size_t>(batch_->tokens[static_cast<size_t>(row)]);
        float* y = floats(item.output, row);
        decode_row(table.type, table.slices[0] + token * row_bytes(table.type, table.cols), y, table.cols);
        if (embed.scale != 1.0F) elementwise_.scale(y, embed.scale, table.cols, y);
        return;
      }
      case RowItem::Kind::rms_norm: {
        const auto& norm = std::get<op::RmsNorm>(op.action);
        elementwise_.rms_norm(floats(item.input, row), norm.weight != nullptr ? norm.weight->values.data() : nullptr,
                              norm.eps, norm.group, place(item.output).width / norm.group, floats(item.output, row));
        return;
      }
      case RowItem::Kind::rope: {
        const auto& rope = std::get<op::Rope>(op.action);
        float* y = floats(item.output, row);
        std::memcpy(y, floats(item.input, row), static_cast<size_t>(place(item.output).width) * sizeof(float));
        const auto pairs = static_cast<int64_t>(rope.table->frequencies.size());
        const int64_t at = batch_->positions[static_cast<size_t>(row)] * pairs;
        elementwise_.rope(y, rope.table->cosines.data() + at, rope.table->sines.data() + at,
                          static_cast<int32_t>(pairs), rope.pairing, rope.heads, rope.head_dim);
        return;
      }
      case RowItem::Kind::add:
        elementwise_.add(floats(op.inputs[0], row), floats(op.inputs[1], row), place(item.output).width,
                         floats(item.output, row));
        return;
      case RowItem::Kind::gate:
        elementwise_.gate(std::get<op::Gate>(op.action).activation, floats(op.inputs[0], row),
                          floats(op.inputs[1], row), place(item.output).width, floats(item.output, row));
        return;
      case RowItem::Kind::scale: {
        const auto& factors = std::get<op::Scale>(op.action).values->values;
        const float* x = floats(item.input, row);
        float* y = floats(item.output, row);
        if (factors.size() == 1) {
          elementwise_.scale(x, factors[0], place(item.output).width, y);
        } else {
          elementwise_.multiply(x, factors.data(), place(item.output).width, y);
        }
        return;
      }
      case RowItem::Kind::softcap:
        elementwise_.softcap(floats(item.input, row), std::get<op::Softcap>(op.action).cap, place(item.output).width,
                             floats(item.output, row));
        return;
      case RowItem::Kind::gather:
        std::memcpy(floats(item.output, row), floats(item.input, batch_->sampled_rows[static_cast<size_t>(row)]),
                    static_cast<size_t>(place(item.output).width) * sizeof(float));
        return;
      case RowItem::Kind::append: {
        const SequenceRows& sequence = batch_->sequences[static_cast<size_t>(sequence_of_[static_cast<size_t>(row)])];
        const auto call =
            make_attention_call(std::get<op::Attend>(op.action), *batch_, cache_, nullptr, nullptr, nullptr);
        attention_.append(call, sequence, static_cast<int32_t>(row) - sequence.first_row, 1, floats(op.inputs[1], 0),
                          floats(op.inputs[2], 0));
        return;
      }
      case RowItem::Kind::quantise:
        linear_.quantise(floats(item.input, row), place(item.input).width / kBlockValues,
                         quant(item.input).chunk(row / kChunkRows, rows), static_cast<int32_t>(row % kChunkRows));
        return;
      case RowItem::Kind::choose: {
        const auto& route = std::get<op::Route>(op.action);
        Routes& routes = routes_[static_cast<size_t>(item.output)];
        const cpu::RouteRule rule = {
            static_cast<int32_t>(route.router->rows), route.top_k, route.renormalise,
            route.per_expert_scale != nullptr ? route.per_expert_scale->values.data() : nullptr};
        elementwise_.route(rule, floats(item.input, row), routes.experts.data() + row * route.top_k,
                           routes.weights.data() + row * route.top_k);
        return;
      }
    }
  }

  // --- the observer -----------------------------------------------------------------------------------------------
  void show_linears(const Stage& stage, int64_t rows) {
    for (const LinearItem& item : stage.linears) {
      shown_.clear();
      for (int64_t row = 0; row < rows; ++row) shown_.push_back(floats(item.input, row));
      observer_->see(*item.matrix->source, 0, shown_);
    }
  }
  void show_experts(const ExpertCall& call) {
    for (const RouteGroups::Group& group : call.groups->groups()) {
      shown_.clear();
      for (int32_t i = 0; i < group.count; ++i) {
        shown_.push_back(call.floats + call.groups->row_at(group.first + i) * call.matrices->gate->source->cols);
      }
      observer_->see(*call.matrices->gate->source, group.expert, shown_);
      observer_->see(*call.matrices->up->source, group.expert, shown_);
    }
  }
  void show_hidden(const ExpertCall& call) {
    const auto inner = static_cast<size_t>(call.matrices->gate->source->rows);
    std::vector<float> hidden;
    for (const RouteGroups::Group& group : call.groups->groups()) {
      experts_.read_hidden(group, hidden);
      shown_.clear();
      for (size_t i = 0; i < static_cast<size_t>(group.count); ++i) shown_.push_back(hidden.data() + i * inner);
      observer_->see(*call.matrices->down->source, group.expert, shown_);
    }
  }

  // --- matrices ---------------------------------------------------------------------------------------------------
  RowChunk chunk_of(ValueId id, bool quantised, int64_t chunk, int64_t rows) {
    RowChunk x;
    x.rows = static_cast<int32_t>(std::min<int64_t>(kChunkRows, rows - chunk * kChunkRows));
    if (quantised) {
      x.quant = quant(id).chunk(chunk, rows);
    } else {
      for (int32_t r = 0; r < x.rows; ++r) x.floats[r] = floats(id, chunk * kChunkRows + r);
    }
    return x;
  }

  void run_linears(const Stage& stage, int64_t rows) {
    const auto chunks = static_cast<int32_t>((rows + kChunkRows - 1) / kChunkRows);
    linear_jobs_.clear();
    for (const LinearItem& item : stage.linears) {
      const Matrix& m = *item.matrix;
      const int64_t per_job = std::clamp<int64_t>(kLinearJobBytes / m.tile_bytes, 1, m.tiles);
      const int64_t pieces = (m.tiles + per_job - 1) / per_job;
      // A small matrix and many rows: cut the rows too.
      const int64_t wanted = int64_t{8} * team_.size();
      const auto cuts = static_cast<int32_t>(std::clamp<int64_t>((wanted + pieces - 1) / pieces, 1, chunks));
      for (int64_t first = 0; first < m.tiles; first += per_job) {
        for (int32_t cut = 0; cut < cuts; ++cut) {
          linear_jobs_.push_back(
              {&item, first, std::min(first + per_job, m.tiles), chunks * cut / cuts, chunks * (cut + 1) / cuts});
        }
      }
      count_bytes(item.op, static_cast<double>(m.bytes()));
    }
    run_jobs(
        static_cast<int64_t>(linear_jobs_.size()), [&](int64_t index, int) { run_linear(index, rows); },
        [&](int64_t index) { return linear_jobs_[static_cast<size_t>(index)].item->op; });
  }

  void run_linear(int64_t index, int64_t rows) {
    const LinearJob& job = linear_jobs_[static_cast<size_t>(index)];
    const Matrix& m = *job.item->matrix;
    // The job that this thread will probably take next.
    const auto following = static_cast<size_t>(index + team_.size());
    const LinearJob* after = following < linear_jobs_.size() ? &linear_jobs_[following] : nullptr;
    const int64_t job_rows =
        std::min<int64_t>(rows, int64_t{job.last_chunk} * kChunkRows) - int64_t{job.first_chunk} * kChunkRows;
    const int64_t width = place(job.item->output).width;
    for (int64_t tile = job.first_tile; tile < job.last_tile; ++tile) {
      const bool last = tile + 1 == job.last_tile;
      const Matrix& next_matrix = last && after != nullptr ? *after->item->matrix : m;
      const std::byte* next = !last              ? tile_address(m, 0, tile + 1)
                              : after != nullptr ? tile_address(next_matrix, 0, after->first_tile)
                                                 : nullptr;
      const int64_t output = tile * m.tile_outputs;
      for (int32_t chunk = job.first_chunk; chunk < job.last_chunk; ++chunk) {
        const RowChunk x = chunk_of(job.item->input, m.quantised, chunk, rows);
        float* out = floats(job.item->output, int64_t{chunk} * kChunkRows) + output;
        multiply_tile(linear_, m, 0, tile, x, out, width,
                      upcoming(next, next, next_matrix.tile_bytes, int64_t{chunk - job.first_chunk} * kChunkRows,
                               x.rows, job_rows));
        if (job.item->bias == nullptr) continue;
        const float* bias = job.item->bias->values.data() + output;
        for (int32_t r = 0; r < x.rows; ++r)
          elementwise_.add(out + r * width, bias, outputs_of_tile(m, tile), out + r * width);
      }
    }
  }

  // --- attention --------------------------------------------------------------------------------------------------
  void run_attend(const Stage& stage) {
    const auto start = Clock::now();
    const auto& attend = std::get<op::Attend>(stage.op->action);
    const AttentionPlan& plan = attention_plan(attend);
    const size_t shared = plan.shared_floats(), scratch = plan.scratch_floats();
    const auto call = make_attention_call(attend, *batch_, cache_, floats(stage.op->inputs[0], 0),
                                          floats(stage.op->output, 0), shared_.reserve(shared));
    for (FloatBuffer& buffer : thread_scratch_) buffer.reserve(scratch);
    if (profile_ != nullptr) profile_->serial_seconds += seconds_since(start);
    const auto op_of = [&](int64_t) { return stage.op; };
    run_jobs(
        static_cast<int64_t>(plan.jobs().size()),
        [&](int64_t index, int thread) {
          attention_.run(call, plan.jobs()[static_cast<size_t>(index)],
                         thread_scratch_[static_cast<size_t>(thread)].data());
        },
        op_of);
    run_jobs(
        static_cast<int64_t>(plan.merges().size()),
        [&](int64_t index, int) { attention_.merge(call, plan.merges()[static_cast<size_t>(index)]); }, op_of);
    double positions = 0;
    for (const SequenceRows& sequence : batch_->sequences) {
      const int32_t seen = sequence.first_position + sequence.rows;
      positions += attend.window > 0 ? std::min(seen, attend.window + sequence.rows - 1) : seen;
    }
    const auto page = static_cast<double>(2 * KvCache::half_page(cache_.type(), attend.kv_heads, attend.head_dim));
    count_bytes(stage.op, positions * page / kPagePositions);
  }

  const AttentionPlan& attention_plan(const op::Attend& attend) {
    for (const AttentionPlan& plan : attention_plans_) {
      if (plan.fits(attend)) return plan;
    }
    return attention_plans_.emplace_back(attend, *batch_, attention_, team_.size());
  }

  // --- experts ----------------------------------------------------------------------------------------------------
  void run_experts(const Stage& stage, int64_t rows) {
    const auto start = Clock::now();
    const auto& action = std::get<op::Experts>(stage.op->action);
    const ExpertMatrices& matrices = expert_matrices_.at(stage.op);
    const ValueId input = stage.op->inputs[0];
    Routes& routes = routes_[static_cast<size_t>(stage.op->inputs[1])];
    const int32_t top_k = place(stage.op->inputs[1]).width;
    routes.groups.build({routes.experts.data(), static_cast<size_t>(rows * top_k)}, top_k,
                        static_cast<int32_t>(action.gate->experts));
    ExpertCall call{};
    call.matrices = &matrices;
    call.groups = &routes.groups;
    call.weights = routes.weights.data();
    call.quant = place(input).quant >= 0 ? &quant(input) : nullptr;
    call.floats = floats(input, 0);
    call.rows = rows;
    call.out = floats(stage.op->output, 0);
    experts_.begin(call);
    const auto distinct = static_cast<double>(routes.groups.groups().size());
    const size_t layer = stats_.routes.size();
    stats_.routes.resize(layer + static_cast<size_t>(action.gate->experts));
    for (const RouteGroups::Group& group : routes.groups.groups())
      stats_.routes[layer + static_cast<size_t>(group.expert)] = static_cast<uint32_t>(group.count);
    stats_.distinct_experts += distinct;
    ++moe_layers_;
    count_bytes(stage.op,
                distinct * static_cast<double>(matrices.gate->bytes() + matrices.up->bytes() + matrices.down->bytes()));
    if (profile_ != nullptr) profile_->serial_seconds += seconds_since(start);
    const auto op_of = [&](int64_t) { return stage.op; };
    if (observer_ != nullptr) show_experts(call);
    run_jobs(
        experts_.gate_up_jobs(), [&](int64_t job, int thread) { experts_.gate_up(job, thread); }, op_of);
    if (observer_ != nullptr) show_hidden(call);
    run_jobs(
        experts_.down_jobs(), [&](int64_t job, int thread) { experts_.down(job, thread); }, op_of);
  }

  const Program& program_;
  Isa isa_;
  ThreadTeam team_;
  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  const AttentionKernels& attention_;
  WeightMemory weights_;
  Plan plan_;
  std::unordered_map<const Op*, ExpertMatrices> expert_matrices_;
  ExpertPass experts_;
  KvCache cache_;

  // Memory of a step, kept for the next one.
  std::vector<FloatBuffer> floats_;
  std::vector<ActivationBuffer> quants_;
  std::vector<Routes> routes_;  // by value
  std::vector<LinearJob> linear_jobs_;
  std::vector<int32_t> sequence_of_;  // by row
  std::vector<AttentionPlan> attention_plans_;
  FloatBuffer shared_;
  std::vector<FloatBuffer> thread_scratch_;

  // The step that is running.
  const Batch* batch_ = nullptr;
  std::span<float> logits_;
  int64_t rows_ = 0, sampled_ = 0;
  StepStats stats_;
  double moe_layers_ = 0;
  size_t stage_ = 0;

  struct Busy {
    double seconds = 0;
    struct Entry {
      double seconds = 0;
      int64_t jobs = 0;
    };
    std::vector<Entry> ops;
  };
  MatrixInputObserver* observer_ = nullptr;
  std::vector<const float*> shown_;
  StepProfile* profile_ = nullptr;
  std::vector<Busy> busy_;  // by thread
};

}  // namespace
}  // namespace cpu

Expected<std::unique_ptr<CpuBackend>> make_cpu_backend(const Program& program, const CpuOptions& options,
                                                       const cpu::PackProgress& progress) {
  COHORT_TRY(check_isa(options.isa));
  if (options.threads < 0 || options.threads > CpuOptions::kMaxThreads) {
    return fail(ErrorCode::invalid_argument,
                "{} threads; choose 1 to {}, or 0 for one per core (this process may use {})", options.threads,
                CpuOptions::kMaxThreads, cpu::available_cores());
  }
  const int threads = options.threads == 0 ? cpu::available_cores() : options.threads;
  auto backend = std::make_unique<cpu::Executor>(program, options, threads);
  COHORT_TRY(backend->load(progress, options.packed));
  return backend;
}

}  // namespace cohort
