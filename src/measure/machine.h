// What this machine is and what it can do at best: the denominators of every "% of roofline".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "kernels/cpu/isa.h"

namespace cohort {

struct CacheLevel {
  int level;
  size_t bytes;
  int count;
};

struct Topology {
  std::string processor;  // the maker's name; may be empty
  int packages = 0, numa_nodes = 0, cores = 0, threads = 0;
  int allowed = 0;  // hardware threads this process may use
  std::vector<CacheLevel> caches;
  size_t memory = 0, available = 0;  // bytes
};
/// internal when hwloc cannot read the machine.
Expected<Topology> read_topology();

/// GB/s that `threads` threads read together from memory (the median of `repeats`). Takes a few tenths of a second and
/// up to 1 GiB of memory. Errors: as probe_machine.
Expected<double> read_bandwidth(int threads, int repeats = 3);

/// Medians of `repeats` runs.
struct Probes {
  int threads = 1;
  double read_one = 0, read_all = 0;  // GB/s, one and all threads
  double fma_one = 0, fma_all = 0;    // f32 GFLOP/s, a multiply-add counted as 2
  struct IntPeak {
    Isa isa;
    double one, all;  // int8 TOP/s, a multiply-add counted as 2
  };
  std::vector<IntPeak> int8;  // one entry per instruction set with such an instruction
};
/// Takes about two seconds and up to 1 GiB of memory (fewer when less is available). invalid_argument for threads < 1;
/// capacity when not even 64 MiB are available.
Expected<Probes> probe_machine(int threads, int repeats = 5);

nlohmann::ordered_json to_json(const Topology& topology, const Probes& probes);
std::string to_text(const Topology& topology, const Probes& probes);

}  // namespace cohort
