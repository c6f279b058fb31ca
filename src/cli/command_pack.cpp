// cohort pack: the weights as the CPU kernels want them, on disk, so that later starts only map them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "base/memory.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "formats/model_files.h"
#include "kernels/cpu/backend.h"
#include "models/model.h"

namespace cohort::cli {
namespace {

struct Arguments {
  std::filesystem::path model, output;
  int threads = 0;
  bool verify = false;
};

Expected<void> pack(const Arguments& a) {
  const auto start = std::chrono::steady_clock::now();
  const auto output = a.output.empty() ? cpu::default_packed_file(a.model) : a.output;
  if (!a.verify) COHORT_TRY(check_output_file(output, model_files(a.model)));
  COHORT_ASSIGN(const auto model, Model::load(a.model));
  CpuOptions options;
  options.threads = a.threads;
  options.packed.mode = a.verify ? cpu::PackedCache::Mode::use : cpu::PackedCache::Mode::write;
  options.packed.verify_all = a.verify;
  options.packed.file = output;
  COHORT_ASSIGN(options.packed.source, cpu::source_identity(a.model));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto backend = make_cpu_backend(model->program(), options, [&](uint64_t done, uint64_t total) {
    if (terminal)
      fmt::print(stderr, "\r\033[Kpacking {:3.0f}%", 100.0 * static_cast<double>(done) / static_cast<double>(total));
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!backend) return tl::unexpected(backend.error());
  if ((*backend)->packed_bytes() == 0)
    return fail(ErrorCode::invalid_argument, "'{}' has no quantised matrices: there is nothing to pack",
                a.model.string());
  fmt::print("{}: {}, {}{:.2f} s\n", options.packed.file.string(),
             format_bytes(static_cast<double>((*backend)->packed_bytes())), a.verify ? "as it was written, " : "",
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

}  // namespace

void add_pack_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "pack", "Write the weights in the layout of the CPU kernels, so that later starts only map them (--packed)");
  command
      ->add_option("-m,--model", a->model,
                   "GGUF file (the first of a split), or folder with config.json and safetensors")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--output", a->output, "File to write (default: beside the model, where --packed auto looks)")
      ->type_name("FILE");
  command->add_option("--threads", a->threads, "Threads (0: one per core)")
      ->check(whole_number(0, kMaxThreads))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag(
      "--verify", a->verify,
      "Write nothing; compare every checksum of the file that is there (a start compares those of a GiB)");
  command->callback([a, &exit_code] {
    const auto done = pack(*a);
    exit_code = done ? 0 : failed("pack", done.error());
  });
}

}  // namespace cohort::cli
