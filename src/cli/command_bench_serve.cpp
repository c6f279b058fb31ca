// cohort bench serve: what the clients of a server get.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "formats/model_files.h"
#include "measure/http_stream.h"
#include "measure/serve_bench.h"

namespace cohort::cli {
namespace {

struct Arguments {
  ServeBenchOptions bench;
  std::string format = "md", csv, plot;
};

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

int run(const Arguments& a) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  for (const std::string& output : {a.csv, a.plot}) {
    if (output.empty()) continue;
    if (const auto checked = check_output_file(output, {}); !checked) return failed("bench serve", checked.error());
  }
  if (!a.csv.empty() && a.csv == a.plot) {
    failed("bench serve", "--csv and --plot name one file: '" + a.csv + "'");
    return kUsage;
  }
  const auto levels = bench_server(a.bench, [terminal](std::string_view what) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", what, terminal ? "" : "\n");
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!levels) return failed("bench serve", levels.error());
  std::cout << (a.format == "csv"    ? serve_bench_csv(*levels)
                : a.format == "json" ? serve_bench_json(*levels)
                                     : serve_bench_markdown(*levels));
  if (!a.csv.empty() && !write(a.csv, serve_bench_csv(*levels)))
    return failed("bench serve", "cannot write '" + a.csv + "'");
  const std::string title =
      fmt::format("Decoding at {}, {} + {} tokens a request", a.bench.url, a.bench.prompt_tokens, a.bench.max_tokens);
  if (!a.plot.empty() && !write(a.plot, serve_bench_svg(*levels, title)))
    return failed("bench serve", "cannot write '" + a.plot + "'");
  int32_t failures = 0;
  for (const ServeBenchLevel& level : *levels) {
    failures += level.failed;
    if (level.failed > 0) {
      fmt::print(stderr, "cohort bench serve: {} of {} requests failed with {} clients: {}\n", level.failed,
                 level.failed + level.ok, level.concurrency, level.failure);
    }
  }
  return failures > 0 ? 1 : 0;
}

}  // namespace

void add_bench_serve_command(CLI::App& bench, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("serve", "Speed of an OpenAI-compatible server at each number of clients, as they see it");
  ServeBenchOptions& o = a->bench;
  command->add_option("--url", o.url, "The server")
      ->type_name("URL")
      ->check([](const std::string& url) {
        const auto address = parse_url(url);
        return address ? std::string() : address.error().message;
      })
      ->capture_default_str();
  command->add_option("--model", o.model, "Name of the model, for servers that ask for one")->type_name("NAME");
  command->add_option("--api-key", o.api_key, "Key, for servers that ask for one")
      ->type_name("KEY")
      ->envname("COHORT_API_KEY");
  command->add_option("--concurrency", o.concurrency, "Numbers of clients")
      ->delimiter(',')
      ->type_name("N,N,...")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  command->add_option("--prompt-tokens", o.prompt_tokens, "Tokens of each prompt, about; prompts differ")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--shared-prefix-tokens", o.shared_prefix_tokens, "Of those, tokens that all prompts begin with")
      ->type_name("N")
      ->check(whole_number(0, 1 << 24))
      ->capture_default_str();
  command->add_option("--max-tokens", o.max_tokens, "New tokens of each request")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24))
      ->capture_default_str();
  command->add_option("-r,--repeats", o.repeats, "Repeats of each level, after one that is not counted")
      ->type_name("N")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->add_flag(
      "--allow-eos", [a](int64_t count) { a->bench.ignore_eos = count == 0; },
      "Do not send ignore_eos, which some servers refuse");
  command->add_option("-o,--output", a->format, "md, csv or json")
      ->check(one_of({"md", "csv", "json"}))
      ->capture_default_str();
  command->add_option("--csv", a->csv, "Write the figures to this file, too")->type_name("FILE");
  command->add_option("--plot", a->plot, "Write an SVG plot to this file")->type_name("FILE");
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
