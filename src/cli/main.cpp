// The one program: `cohort COMMAND`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/printable.h"
#include "cli/command_tune.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "numerics/version.h"

namespace {

/// The field writes some flags of several letters with one dash ("-np 4"); the parser would read those as -n p.
std::vector<std::string> with_two_dashes(int argc, char** argv) {
  constexpr std::array kFlags{"-np", "-npp", "-ntg", "-npl"};
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {  // the parser takes them in reverse
    const std::string argument = argv[i];
    const bool one_dash = std::find(kFlags.begin(), kFlags.end(), argument) != kFlags.end();
    arguments.push_back(one_dash ? "-" + argument : argument);
  }
  return arguments;
}

auto commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// The first argument that is no flag, when it is no command; the parser would say only that a command is missing.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  const std::string name = argv[1];
  const auto named = [&](const CLI::App* command) { return command->get_name() == name; };
  return std::ranges::any_of(commands(app), named) ? "" : name;
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : commands(app)) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

/// The flag `name` as the command line spells it, or the environment variable that gave it its value; empty when
/// neither did.
std::string source_of(const CLI::App& app, const std::string& name, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->check_name(name)) continue;
    for (const std::string& argument : arguments) {
      const std::string flag = argument.substr(0, argument.find('='));
      if (flag.starts_with('-') && option->check_name(flag)) return flag;
    }
    const std::string& variable = option->get_envname();
    if (!variable.empty() && std::getenv(variable.c_str()) != nullptr) return variable;
  }
  for (const CLI::App* command : commands(app)) {
    if (!command->parsed()) continue;
    if (std::string source = source_of(*command, name, arguments); !source.empty()) return source;
  }
  return {};
}

/// What is wrong with the command line. A bad value is named by what gave it: the parser knows one name of each flag,
/// and the flag's where an environment variable is meant.
int exit_with(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const std::string message = error.what();
  if (const size_t colon = message.find(": "); message.starts_with('-') && colon != std::string::npos) {
    const std::string source = source_of(app, message.substr(0, colon), arguments);
    if (!source.empty()) return app.exit(CLI::ValidationError(source, message.substr(colon + 2)));
  }
  return app.exit(error);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort;
  using cli::kFailure, cli::kUsage;
  CLI::App app{"Cohort: mixture-of-experts language models for several streams at once", "cohort"};
  app.set_version_flag("--version", std::string("cohort " COHORT_VERSION ", numerics version ") +
                                        std::to_string(numerics::kNumericsVersion));
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 ended by Ctrl-C.");
  int exit_code = 0;
  cli::explain_bus_errors();
  cli::add_run_command(app, exit_code);
  cli::add_serve_command(app, exit_code);
  cli::add_bench_command(app, exit_code);
  cli::add_profile_command(app, exit_code);
  cli::add_parity_command(app, exit_code);
  cli::add_inspect_command(app, exit_code);
  cli::add_convert_command(app, exit_code);
  cli::add_synth_command(app, exit_code);
  cli::add_pack_command(app, exit_code);
  cli::add_imatrix_command(app, exit_code);
  cli::add_quantize_command(app, exit_code);
  cli::add_perplexity_command(app, exit_code);
  cli::add_doctor_command(app, exit_code);
  cli::add_tune_command(app, exit_code);
  if (const std::string name = unknown_command(app, argc, argv); !name.empty()) {
    constexpr size_t kShownBytes = 80;
    fmt::print(stderr, "cohort: there is no command '{}'; the commands are {}\n", printable(name, kShownBytes),
               command_names(app));
    return kUsage;
  }
  const std::vector<std::string> arguments = with_two_dashes(argc, argv);
  try {
    app.parse(std::vector<std::string>(arguments));
  } catch (const CLI::ParseError& error) {
    return exit_with(app, error, arguments) == 0 ? 0 : kUsage;  // 0: --help and --version
  } catch (const std::exception& error) {  // of the standard library: a full disk behind stdout, no memory left
    std::fprintf(stderr, "cohort: %s\n", error.what());
    return kFailure;
  }
  // What could not be written was not done.
  if (exit_code == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    std::fprintf(stderr, "cohort: the output could not be written: %s\n", std::strerror(errno));
    return kFailure;
  }
  return exit_code;
}
