// The one program: `cohort COMMAND`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>

#include "base/nearest.h"
#include "base/printable.h"
#include "cli/command_tune.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "numerics/version.h"

namespace {

constexpr size_t kShownBytes = 80;  // of an argument in a message

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

/// Flags take a value, too ("--flag=no", or an environment variable's); the parser would throw at one that is none.
void check_flags(CLI::App& app) {
  const auto is_flag = [](const CLI::Option* option) { return option->get_expected_max() == 0; };
  for (CLI::Option* option : app.get_options(is_flag)) option->check(cohort::cli::yes_or_no());
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) check_flags(*command);
}

/// "cohort bench steps".
std::string whole_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : whole_name(*parent) + " ") + command.get_name();
}

/// What to say when the arguments name no command where there must be one; the parser would not say which there are.
/// Empty when they do, or when a flag (--help) comes first.
std::string unknown_command(const CLI::App& app, std::span<char* const> arguments) {
  if (commands(app).empty()) return {};
  std::vector<std::string> names;
  for (const CLI::App* command : commands(app)) names.push_back(command->get_name());
  if (arguments.empty()) return fmt::format("{} needs a command: {}", whole_name(app), fmt::join(names, ", "));
  const std::string name = arguments.front();
  if (name.starts_with('-')) return {};
  for (const CLI::App* command : commands(app)) {
    if (command->get_name() == name) return unknown_command(*command, arguments.subspan(1));
  }
  const std::string_view near = cohort::nearest(name, {names.begin(), names.end()});
  return fmt::format("{}: there is no command '{}'; {}the commands are {}", whole_name(app),
                     cohort::printable(name, kShownBytes), near.empty() ? "" : fmt::format("did you mean {}? ", near),
                     fmt::join(names, ", "));
}

/// The flag `name` as the command line spells it, or the environment variable that gave it its value; empty when
/// neither did.
std::string source_of(const CLI::App& app, const std::string& name, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->check_name(name)) continue;
    for (const std::string& argument : arguments) {
      std::string flag = argument.substr(0, argument.find('='));
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

/// The command that was given, of a command ("bench steps") the inner one.
const CLI::App& given_command(const CLI::App& app) {
  for (const CLI::App* command : commands(app)) {
    if (command->parsed()) return given_command(*command);
  }
  return app;
}

/// What to say of the first argument that `command` does not know.
std::string unexpected(const CLI::App& command, const std::string& argument) {
  const std::string shown = cohort::printable(argument, kShownBytes);
  const std::string help = fmt::format("see {} --help", whole_name(command));
  if (!argument.starts_with('-')) return fmt::format("'{}' was not expected here; {}", shown, help);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string_view near = cohort::nearest(argument.substr(0, argument.find('=')), {names.begin(), names.end()});
  return fmt::format("there is no option '{}'; {}", shown, near.empty() ? help : fmt::format("did you mean {}?", near));
}

/// What is wrong with the command line. A bad value is named by what gave it: the parser knows one name of each flag,
/// and the flag's where an environment variable is meant.
int exit_with(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const std::vector<std::string> left = app.remaining(true);
  // An option that is missing may be one that was misspelt.
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (missing && !left.empty())) {
    const CLI::App& command = given_command(app);
    // The parser leaves the values of an unknown option with it.
    const auto flag = std::ranges::find_if(left, [](const std::string& one) { return one.starts_with('-'); });
    fmt::print(stderr, "{}\n", unexpected(command, flag == left.end() ? left.front() : *flag));
    return error.get_exit_code();
  }
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
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 ended by Ctrl-C (a server that was ready drains "
      "and returns 0).");
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
  check_flags(app);
  if (const std::string problem = unknown_command(app, std::span(argv, argv + argc).subspan(1)); !problem.empty()) {
    fmt::print(stderr, "{}\n", problem);
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
