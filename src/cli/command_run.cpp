// cohort run: continue one or many prompts, or chat.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "base/counted.h"
#include "base/printable.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/prompts.h"
#include "cli/run_streams.h"
#include "cli/stream_view.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "models/model.h"

namespace cohort::cli {
namespace {

constexpr size_t kNoteBytes = 1000;

struct Arguments {
  EngineOptions engine;
  PromptSources prompts;
  RunOptions run;
  int64_t seed = -1;  // below 0: random
  std::string token_filter;
};

int continue_prompts(Engine& engine, const TextModel& text, const RunOptions& options,
                     const std::vector<std::string>& prompts) {
  std::vector<Stream> streams;
  streams.reserve(prompts.size());
  for (const std::string& prompt : prompts) streams.push_back({.prompt = prompt});
  Expected<Totals> totals;
  if (options.json) {
    totals = run_streams(engine, text, options, false, streams, [](size_t, const std::string&) {});
    if (totals) {
      nlohmann::ordered_json out;
      for (const Stream& stream : streams) out["streams"].push_back(to_json(stream));
      add_totals(*totals, out);
      print_json(out, 2);
    }
  } else {
    StreamView view(prompts, ::isatty(STDOUT_FILENO) != 0);
    totals = run_streams(engine, text, options, false, streams, [&](size_t i, const std::string& piece) {
      view.append(i, piece);
      view.tick();
    });
    if (totals) view.finish();
  }
  if (!totals) return failed("run", totals.error());
  int exit_code = InterruptGuard::interrupted() ? kInterruptedExit : 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].error.empty()) continue;
    fmt::print(stderr, "cohort run: stream {}: {}\n", i + 1, streams[i].error);
    exit_code = 1;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].finish_reason != to_string(FinishReason::context)) continue;
    fmt::print(stderr, "stream {} stopped at the end of its context ({}; -c)\n", i + 1,
               counted(engine.model().context(), "position"));
  }
  if (!options.json) print_totals(engine, *totals);
  return exit_code;
}

int run(Arguments& a) {
  const InterruptGuard guard(InterruptGuard::Mode::end_at_once);
  const auto prompts = collect_prompts(a.prompts);
  if (!prompts) return failed("run", prompts.error());
  for (const std::string& note : prompts->notes) fmt::print(stderr, "note: {}\n", printable(note, kNoteBytes));
  a.run.sampling.seed = a.seed >= 0 ? static_cast<uint64_t>(a.seed) : std::random_device{}();
  if (a.prompts.copies > 0) a.engine.max_streams = a.prompts.copies;
  // A prompt of a run is read once and continued once: the context need not be what the model could hold.
  const auto loaded = load_engine(a.engine);
  if (!loaded) return failed("run", loaded.error());
  Engine& engine = **loaded;
  if (engine.diffusion().canvas_length > 0 && !a.token_filter.empty()) {
    return failed("run", {ErrorCode::unsupported,
                          fmt::format("{} chooses among single tokens; this model denoises {} (--diffusion-*): leave "
                                      "it out",
                                      a.token_filter, canvas_note(engine))});
  }
  const auto text = load_text_model(engine.model());
  if (!text) return failed("run", text.error());
  if (prompts->texts.empty()) {
    a.run.exact = false;  // a conversation grows; its last answer is cut, and says so
    return chat(engine, *text, a.run);
  }
  InterruptGuard::set(InterruptGuard::Mode::ask);
  return continue_prompts(engine, *text, a.run, prompts->texts);
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Continue one or many prompts, or chat when no prompt is given");
  command->footer(
      "Ctrl-C ends the generation; what has come so far is printed, and unfinished streams are \"interrupted\". A "
      "second "
      "one ends the\n"
      "program at once. While a chat waits for a line, Ctrl-C ends it.");
  add_engine_flags(*command, a->engine);
  add_draft_flags(*command, a->engine);
  add_diffusion_flags(*command, a->engine);
  command->add_option("-p,--prompt", a->prompts.texts, "A prompt; give it several times for several streams")
      ->type_name("TEXT")
      ->check(not_empty())
      ->check(utf8_text());
  command
      ->add_option("-f,--file", a->prompts.file,
                   "A file or pipe that is one prompt, byte for byte (only one line break at its end is left out)")
      ->type_name("FILE");
  command
      ->add_option("--prompts", a->prompts.lines,
                   "A file or pipe with one prompt a line (\\n is a line break): one stream each")
      ->type_name("FILE");
  command
      ->add_option("--parallel", a->prompts.copies,
                   "Streams that run together; with a single prompt: so many continuations of it")
      ->type_name("N")
      ->check(whole_number(1, kMaxStreams));
  const CLI::Option* tokens =
      command
          ->add_option(
              "-n,--tokens", a->run.tokens,
              "New tokens of each stream, at most (0: what the context holds); more than fit after a prompt are "
              "an error, but answers of a chat end with the context")
          ->type_name("N")
          ->check(whole_number(0, INT32_MAX))
          ->capture_default_str();
  command->add_option("--seed", a->seed, "Seed of the sampling; stream i uses seed + i (default: random)")
      ->type_name("S")
      ->check(whole_number(0, INT64_MAX));
  command->add_flag("--ignore-eos", a->run.ignore_eos, "Go on after an end token");
  command->add_flag("--json", a->run.json,
                    "Print tokens, texts and times as JSON at the end; in a chat one line of JSON for every answer");
  add_sampling_flags(*command, a->run.sampling);
  command->callback([a, tokens, command, &exit_code] {
    a->run.exact = tokens->count() > 0;
    a->token_filter = token_filter(*command);
    exit_code = run(*a);
  });
}

}  // namespace cohort::cli
