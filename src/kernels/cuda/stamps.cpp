#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/stamps.h"

#include "base/result.h"

namespace cohort::cuda {

#ifdef COHORT_STAMPS

Expected<void> allocate_stamps(DeviceMemory& memory, size_t launches, Step& step) {
  const size_t bytes = launches * 2 * kStampBlocks * kStampWords * 8;
  COHORT_ASSIGN(void* stamps, memory.allocate(bytes, "stamps"));
  COHORT_TRY(check(cudaMemset(stamps, 0, bytes), "clearing stamps"));
  step.stamps = static_cast<unsigned long long*>(stamps);
  return {};
}

void next_launch(Step& step) {
  ++step.launch;
}

Expected<std::vector<BlockStamps>> read_stamps(const Step& step, const std::vector<const Launch*>& launches) {
  std::vector<unsigned long long> raw(launches.size() * 2 * kStampBlocks * kStampWords);
  COHORT_TRY(check(cudaMemcpy(raw.data(), step.stamps, raw.size() * 8, cudaMemcpyDeviceToHost), "reading stamps"));
  std::vector<BlockStamps> out;
  for (size_t i = 0; i < raw.size(); i += kStampWords) {
    if (raw[i + 1] == 0) continue;
    const size_t block = i / kStampWords, launch = block / kStampBlocks / 2;
    BlockStamps stamps;
    stamps.kind = launches[launch]->kind;
    stamps.launch = static_cast<int64_t>(launch);
    stamps.second = block / kStampBlocks % 2 != 0;
    stamps.block = static_cast<int32_t>(block % kStampBlocks);
    stamps.sm = static_cast<int32_t>(raw[i + 1] - 1);
    stamps.start_ns = raw[i + kStampWords - 1];
    stamps.cycles.push_back(raw[i]);
    for (size_t w = 2; w + 1 < kStampWords; ++w) stamps.cycles.push_back(raw[i + w]);
    out.push_back(std::move(stamps));
  }
  return out;
}

#else

Expected<void> allocate_stamps(DeviceMemory&, size_t, Step&) {
  return {};
}
void next_launch(Step&) {}
Expected<std::vector<BlockStamps>> read_stamps(const Step&, const std::vector<const Launch*>&) {
  return fail(ErrorCode::unsupported, "this build has no stamps: configure with -DCOHORT_CUDA_STAMPS=ON");
}

#endif

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
