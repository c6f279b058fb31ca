#include "kernels/cpu/step_clock.h"

namespace cohort::cpu {

void StepClock::begin_step(size_t stages) {
  if (profile_ == nullptr) return;
  profile_->ops.resize(program_.ops.size());
  profile_->stages.resize(stages);
}

void StepClock::end_step(double seconds) {
  if (profile_ == nullptr) return;
  profile_->seconds += seconds;
  ++profile_->steps;
}

void StepClock::begin_list() {
  for (Busy& busy : busy_) {
    busy.seconds = 0;
    busy.ops.resize(program_.ops.size());
  }
}

void StepClock::end_list(double wall) {
  StageProfile& stage = profile_->stages[stage_];
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

}  // namespace cohort::cpu
