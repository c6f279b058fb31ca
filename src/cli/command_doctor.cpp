// cohort doctor: what this machine is, what it can do at best, and what will be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "kernels/cuda/backend.h"
#include "measure/machine.h"

namespace cohort::cli {
namespace {

struct Arguments {
  int threads = 0, repeats = 5;
  bool json = false;
};

/// The CUDA devices of this machine, each as it describes itself or with the reason why it cannot be used.
struct Devices {
  struct Device {
    std::string description;
    bool usable = false;
  };
  std::vector<Device> list;
  std::string none;  // why there is none at all
};

Devices find_devices() {
  Devices found;
  // There is no device -1: any other answer is about the build, the driver or the machine.
  if (const Error error = describe_cuda_device(-1).error(); error.code != ErrorCode::invalid_argument) {
    found.none = error.message;
    return found;
  }
  for (int i = 0;; ++i) {
    const auto device = describe_cuda_device(i);
    if (!device && device.error().code == ErrorCode::invalid_argument) return found;
    found.list.push_back({device ? *device : device.error().message, device.has_value()});
  }
}

std::string to_text(const Devices& devices) {
  if (!devices.none.empty()) return fmt::format("CUDA devices       none: {}\n", devices.none);
  std::string text;
  for (size_t i = 0; i < devices.list.size(); ++i) {
    const auto& [description, usable] = devices.list[i];
    text += fmt::format("CUDA device {:<6} {}{}\n", i, description,
                        usable && i == 0 ? "; will be used for models that it can run (--device changes it)" : "");
  }
  return text;
}

nlohmann::ordered_json to_json(const Devices& devices) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [description, usable] : devices.list) {
    list.push_back({{"description", description}, {"usable", usable}});
  }
  return list;
}

int run(const Arguments& arguments) {
  const auto topology = read_topology();
  if (!topology) return failed("doctor", topology.error());
  const auto probes = probe_machine(arguments.threads == 0 ? topology->allowed : arguments.threads, arguments.repeats);
  if (!probes) return failed("doctor", probes.error());
  const Devices devices = find_devices();
  if (arguments.json) {
    auto json = cohort::to_json(*topology, *probes);
    json["cuda_devices"] = to_json(devices);
    if (!devices.none.empty()) json["cuda_devices_none"] = devices.none;
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}{}", cohort::to_text(*topology, *probes), to_text(devices));
  }
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("doctor", "Measure this machine, list its CUDA devices and say what will be used");
  command->add_option("-t,--threads", arguments->threads, "Threads to measure with (0: all that may be used)")
      ->check(whole_number(0, kMaxThreads));
  command->add_option("--repeats", arguments->repeats, "Repeats of each measurement, of which the median counts")
      ->check(whole_number(1, 1000));
  command->add_flag("--json", arguments->json, "Report as JSON");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace cohort::cli
