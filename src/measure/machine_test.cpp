#include "measure/machine.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cohort {
namespace {

TEST(machine, topology_is_consistent) {
  const auto topology = read_topology();
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_GE(topology->cores, 1);
  EXPECT_GE(topology->threads, topology->cores);
  EXPECT_GE(topology->allowed, 1);
  EXPECT_LE(topology->allowed, topology->threads);
  EXPECT_GT(topology->memory, size_t{1} << 24);
}

TEST(machine, probes_measure_and_report) {
  const auto topology = read_topology();
  const auto probes = probe_machine(2, 1);
  ASSERT_TRUE(topology && probes);
  EXPECT_GT(probes->read_one, 0.05);
  EXPECT_GT(probes->read_all, 0.05);
  EXPECT_LT(probes->read_all, 1e5);
  EXPECT_GT(probes->fma_one, 0.01);
  size_t with_int8 = 0;
  for (Isa isa : available_isas()) with_int8 += isa == Isa::avx512 || isa == Isa::amx || isa == Isa::neon ? 1 : 0;
  EXPECT_EQ(probes->int8.size(), with_int8);
  for (const auto& peak : probes->int8) EXPECT_GT(peak.one, 0.001);
  const auto json = to_json(*topology, *probes);
  EXPECT_EQ(json["used_instruction_set"], isa_name(best_isa()));
  EXPECT_EQ(json["measured_threads"], 2);
  EXPECT_NE(to_text(*topology, *probes).find("GB/s"), std::string::npos);
}

TEST(machine, refuses_absurd_threads) {
  for (int threads : {0, -3, 100000}) {
    const auto probes = probe_machine(threads);
    ASSERT_FALSE(probes);
    EXPECT_EQ(probes.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace cohort
