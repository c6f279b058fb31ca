#include "kernels/cpu/backend.h"

#include <sched.h>

#include <algorithm>

#include "base/result.h"
#include "base/thread_team.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/linear_stage.h"
#include "kernels/cpu/mix_stage.h"
#include "kernels/cpu/owned_jobs.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/row_items.h"
#include "kernels/cpu/step_clock.h"
#include "kernels/cpu/step_values.h"
#include "kv/cache.h"

namespace cohort {
namespace cpu {
namespace {

int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

using Clock = StepClock::Clock;

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
        linears_(linear_, elementwise_, threads),
        mix_(elementwise_),
        attention_jobs_(threads),
        thread_scratch_(static_cast<size_t>(threads)),
        clock_(program, threads) {
    experts_.set_tuning(options.tuning);
  }

  Expected<void> load(const PackProgress& progress, const PackedCache& cache) {
    COHORT_ASSIGN(weights_, WeightMemory::create(program_, team_, progress, cache));
    make_plan(false);
    for (const Stage& stage : plan_.stages) {
      if (stage.kind != Stage::Kind::experts) continue;
      const auto& action = std::get<op::Experts>(stage.op->action);
      const ExpertMatrices matrices = {&weights_.matrix(action.gate),
                                       &weights_.matrix(action.up),
                                       &weights_.matrix(action.down),
                                       action.activation,
                                       action.gate_bias,
                                       action.up_bias,
                                       action.down_bias};
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
  void set_profile(StepProfile* profile) override { clock_.set_profile(profile); }
  std::string plan_text() const override { return to_text(program_, plan_); }
  size_t packed_bytes() const override { return weights_.bytes(); }
  int threads() const override { return team_.size(); }
  ThreadTeam* team() override { return &team_; }

  Expected<StepStats> run(const Batch& batch, std::span<float> logits) override {
    const auto start = Clock::now();
    begin(batch, logits);
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const Stage& stage = plan_.stages[i];
      const int64_t rows = stage.extent == Extent::sampled ? values_.sampled() : values_.rows();
      if (rows == 0) continue;
      clock_.begin_stage(i);
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
        case Stage::Kind::mix:
          run_mix(stage);
          break;
      }
    }
    if (moe_layers_ > 0) stats_.distinct_experts /= moe_layers_;
    stats_.seconds = StepClock::seconds_since(start);
    clock_.end_step(stats_.seconds);
    return stats_;
  }

 private:
  void make_plan(bool keep_inputs) {
    plan_ = compile(program_, weights_, keep_inputs);
    values_.use(plan_);
  }

  void begin(const Batch& batch, std::span<float> logits) {
    values_.begin(batch, logits);
    stats_ = {};
    stats_.rows = values_.rows();
    moe_layers_ = 0;
    attention_plans_.clear();
    clock_.begin_step(plan_.stages.size());
  }
  void count_bytes(const Op* op, double bytes) {
    stats_.bytes += bytes;
    clock_.add_bytes(op, bytes);
  }

  // --- row stages -------------------------------------------------------------------------------------------------
  void run_rows(const Stage& stage, int64_t rows) {
    // Neighbouring rows share cache lines of the int8 activations, so few threads share few chunks.
    const int64_t per_job = std::clamp<int64_t>((rows + team_.size() - 1) / team_.size(), 1, kChunkRows);
    const RowKernels kernels = {linear_, elementwise_, attention_, &cache_};
    clock_.run_jobs(
        team_, (rows + per_job - 1) / per_job,
        [&](int64_t job, int thread) {
          for (int64_t row = job * per_job; row < std::min((job + 1) * per_job, rows); ++row) {
            for (const RowItem& item : stage.rows) {
              if (!clock_.on()) {
                run_row_item(kernels, item, row, rows, values_);
                continue;
              }
              const auto start = Clock::now();
              run_row_item(kernels, item, row, rows, values_);
              clock_.add_time(thread, item.op, StepClock::seconds_since(start));
            }
          }
        },
        [](int64_t) -> const Op* { return nullptr; });
  }

  // --- the observer -----------------------------------------------------------------------------------------------
  void show_linears(const Stage& stage, int64_t rows) {
    for (const LinearItem& item : stage.linears) {
      shown_.clear();
      for (int64_t row = 0; row < rows; ++row) shown_.push_back(values_.floats(item.input, row));
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
  void run_linears(const Stage& stage, int64_t rows) {
    for (const LinearItem& item : stage.linears) count_bytes(item.op, static_cast<double>(item.matrix->bytes()));
    linears_.begin(stage, values_, rows);
    clock_.run_jobs(
        team_, linears_.jobs(), [&](int64_t job, int) { linears_.run(job); },
        [&](int64_t job) { return linears_.op_of(job); });
  }

  // --- canvases ---------------------------------------------------------------------------------------------------
  void run_mix(const Stage& stage) {
    mix_.begin(std::get<op::Mix>(stage.op->action), values_.batch(), values_.floats(stage.op->output, 0));
    clock_.run_jobs(
        team_, mix_.jobs(), [&](int64_t job, int) { mix_.run(job); }, [&](int64_t) { return stage.op; });
  }

  // --- attention --------------------------------------------------------------------------------------------------
  void run_attend(const Stage& stage) {
    const auto start = Clock::now();
    const auto& attend = std::get<op::Attend>(stage.op->action);
    const AttentionPlan& plan = attention_plan(attend);
    const size_t shared = plan.shared_floats(), scratch = plan.scratch_floats();
    auto call = make_attention_call(attend, values_.batch(), cache_, values_.floats(stage.op->inputs[0], 0),
                                    values_.floats(stage.op->output, 0), shared_.reserve(shared));
    const auto jobs = plan.jobs();
    call.far_ahead = jobs.size() >= kManyJobs * static_cast<size_t>(team_.size());
    attention_jobs_.begin(static_cast<int64_t>(jobs.size()),
                          [&](int64_t job) { return double{jobs[static_cast<size_t>(job)].cost}; });
    for (FloatBuffer& buffer : thread_scratch_) buffer.reserve(scratch);
    clock_.add_serial(start);
    const auto op_of = [&](int64_t) { return stage.op; };
    clock_.run_jobs(
        team_, static_cast<int64_t>(jobs.size()),
        [&](int64_t, int thread) {
          int64_t next = -1;
          const int64_t job = attention_jobs_.take(thread, next);
          attention_.run(call, jobs[static_cast<size_t>(job)], next >= 0 ? &jobs[static_cast<size_t>(next)] : nullptr,
                         thread_scratch_[static_cast<size_t>(thread)].data());
        },
        op_of);
    clock_.run_jobs(
        team_, static_cast<int64_t>(plan.merges().size()),
        [&](int64_t index, int) { attention_.merge(call, plan.merges()[static_cast<size_t>(index)]); }, op_of);
    double positions = 0;
    for (const SequenceRows& sequence : values_.batch().sequences) {
      const int32_t seen = sequence.first_position + sequence.rows;
      positions += attend.window > 0 ? std::min(seen, attend.window + sequence.rows - 1) : seen;
    }
    const auto page = static_cast<double>(2 * KvCache::half_page(cache_.type(), attend.kv_heads, attend.head_dim));
    count_bytes(stage.op, positions * page / kPagePositions);
  }

  /// So many jobs of attention for each thread are many (AttentionCall::far_ahead).
  static constexpr size_t kManyJobs = 16;

  const AttentionPlan& attention_plan(const op::Attend& attend) {
    for (const AttentionPlan& plan : attention_plans_) {
      if (plan.fits(attend)) return plan;
    }
    return attention_plans_.emplace_back(attend, values_.batch(), attention_, team_.size());
  }

  // --- experts ----------------------------------------------------------------------------------------------------
  void run_experts(const Stage& stage, int64_t rows) {
    const auto start = Clock::now();
    const auto& action = std::get<op::Experts>(stage.op->action);
    const ExpertMatrices& matrices = expert_matrices_.at(stage.op);
    const ValueId input = stage.op->inputs[0];
    Routes& routes = values_.routes(stage.op->inputs[1]);
    const int32_t top_k = values_.place(stage.op->inputs[1]).width;
    routes.groups.build({routes.experts.data(), static_cast<size_t>(rows * top_k)}, top_k,
                        static_cast<int32_t>(action.gate->experts));
    ExpertCall call{};
    call.matrices = &matrices;
    call.groups = &routes.groups;
    call.weights = routes.weights.data();
    call.quant = values_.place(input).quant >= 0 ? &values_.quant(input) : nullptr;
    call.floats = values_.floats(input, 0);
    call.rows = rows;
    call.out = values_.floats(stage.op->output, 0);
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
    clock_.add_serial(start);
    const auto op_of = [&](int64_t) { return stage.op; };
    if (observer_ != nullptr) show_experts(call);
    clock_.run_jobs(
        team_, experts_.gate_up_jobs(), [&](int64_t job, int thread) { experts_.gate_up(job, thread); }, op_of);
    if (observer_ != nullptr) show_hidden(call);
    clock_.run_jobs(
        team_, experts_.down_jobs(), [&](int64_t job, int thread) { experts_.down(job, thread); }, op_of);
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
  StepValues values_;
  LinearStage linears_;
  MixStage mix_;
  std::vector<AttentionPlan> attention_plans_;
  OwnedJobs attention_jobs_;
  FloatBuffer shared_;
  std::vector<FloatBuffer> thread_scratch_;

  // The step that is running.
  StepStats stats_;
  double moe_layers_ = 0;

  MatrixInputObserver* observer_ = nullptr;
  std::vector<const float*> shown_;
  StepClock clock_;
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
