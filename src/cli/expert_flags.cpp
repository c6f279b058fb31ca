#include "cli/expert_flags.h"

#include <CLI/CLI.hpp>

#include "cli/values.h"

namespace cohort::cli {

void add_expert_shape_flags(CLI::App& command, ExpertShape& shape) {
  command.add_option("--hidden", shape.hidden, "Width of a token")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--inter", shape.inner, "Width inside of an expert")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--experts", shape.experts, "Experts of a layer")
      ->check(whole_number(1, 65536))
      ->capture_default_str();
  command.add_option("--top-k", shape.top_k, "Experts of a token")
      ->check(whole_number(1, 65536))
      ->capture_default_str();
}

void add_expert_run_flags(CLI::App& command, int& threads, std::string& isa, int32_t& repeats) {
  command.add_option("--threads", threads, "Threads (0: one per core)")
      ->check(whole_number(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--isa", isa, "Instruction set: auto, scalar, avx2, avx512, amx, neon")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("-r,--repeats", repeats, "Repeats; the median counts")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace cohort::cli
