// cohort run: continue one or many prompts, or chat.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/stream_view.h"
#include "models/model.h"
#include "text/template/chat.h"
#include "text/text_model.h"

namespace cohort::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Arguments {
  EngineOptions engine;
  SamplingParams sampling;
  std::vector<std::string> prompts;
  std::string prompt_file, prompts_file;
  int32_t tokens = 128, parallel = 0;
  int64_t seed = -1;
  bool json = false, ignore_eos = false;
};

struct Totals {
  double prefill_seconds = 0, decode_seconds = 0, experts = 0;
  int64_t prefill_rows = 0, decode_rows = 0, decode_steps = 0;

  void add(const StepReport& report) {
    // A step that holds prompt rows counts as prefill: its time is theirs.
    if (report.prefill_rows > 0) {
      prefill_seconds += report.seconds;
      prefill_rows += report.prefill_rows;
      return;
    }
    decode_seconds += report.seconds;
    decode_rows += report.decode_rows;
    ++decode_steps;
    experts += report.distinct_experts;
  }
};

struct Stream {
  std::string prompt;
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish = FinishReason::none;
  std::string error;
};

/// The parser would cut a number that does not fit to the largest one that does.
std::string whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return {};
  return fmt::format("'{}' is no whole number from 0 to {}", text, INT64_MAX);
}

int failed(const Error& error) {
  fmt::print(stderr, "cohort run: {}\n", error.message);
  return 1;
}

/// One prompt a line; "\n" and "\\" in a line stand for a line break and a backslash. Empty lines are no prompts.
Expected<std::vector<std::string>> read_prompts(const std::string& path) {
  COHORT_ASSIGN(const std::string text, read_text_file(path));
  std::vector<std::string> prompts;
  std::string line;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == '\n') {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty()) prompts.push_back(line);
      line.clear();
    } else if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'n' || text[i + 1] == '\\')) {
      line += text[++i] == 'n' ? '\n' : '\\';
    } else {
      line += text[i];
    }
  }
  if (prompts.empty()) return fail(ErrorCode::invalid_argument, "'{}' holds no prompt; put one on each line", path);
  return prompts;
}

Expected<std::vector<std::string>> collect_prompts(const Arguments& a) {
  std::vector<std::string> prompts = a.prompts;
  if (!a.prompt_file.empty()) {
    COHORT_ASSIGN(std::string text, read_text_file(a.prompt_file));
    if (text.ends_with('\n')) text.pop_back();  // editors end files so; nobody means it
    prompts.push_back(std::move(text));
  }
  if (!a.prompts_file.empty()) {
    COHORT_ASSIGN(const auto more, read_prompts(a.prompts_file));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  // --parallel with one prompt: so many continuations of it, each with its own seed.
  if (prompts.size() == 1 && a.parallel > 1) prompts.resize(static_cast<size_t>(a.parallel), prompts[0]);
  return prompts;
}

void print_totals(const Engine& engine, const Totals& t) {
  const auto rate = [](int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  const auto steps = static_cast<double>(std::max<int64_t>(t.decode_steps, 1));
  fmt::print(stderr, "prefill {} tokens at {:.0f} tok/s; decode {} tokens at {:.0f} tok/s, {:.1f} rows a step",
             t.prefill_rows, rate(t.prefill_rows, t.prefill_seconds), t.decode_rows,
             rate(t.decode_rows, t.decode_seconds), static_cast<double>(t.decode_rows) / steps);
  if (engine.model().config().experts > 0) {
    fmt::print(stderr, ", {:.1f} of {} experts a step", t.experts / steps, engine.model().config().experts);
  }
  fmt::print(stderr, " ({})\n", engine.description());
}

void print_json(const std::vector<Stream>& streams, const Totals& t) {
  nlohmann::ordered_json out;
  for (const Stream& s : streams) {
    nlohmann::ordered_json one{
        {"prompt", s.prompt}, {"text", s.text}, {"tokens", s.tokens}, {"finish_reason", to_string(s.finish)}};
    if (!s.error.empty()) one["error"] = s.error;
    out["streams"].push_back(std::move(one));
  }
  out["prefill_tokens"] = t.prefill_rows;
  out["prefill_seconds"] = t.prefill_seconds;
  out["decode_tokens"] = t.decode_rows;
  out["decode_seconds"] = t.decode_seconds;
  out["decode_steps"] = t.decode_steps;
  out["distinct_experts"] = t.experts / static_cast<double>(std::max<int64_t>(t.decode_steps, 1));
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Submits every prompt and steps until all are done; text goes to `show` as it comes.
template <class Show>
Expected<Totals> run_streams(Engine& engine, const TextModel& text, const Arguments& a, std::vector<Stream>& streams,
                             bool special, const Show& show) {
  std::unordered_map<SequenceId, size_t> index;
  std::vector<text::Detokenizer> detokenizers;
  for (size_t i = 0; i < streams.size(); ++i) {
    SequenceRequest request;
    COHORT_ASSIGN(request.prompt,
                  text.tokenizer.encode(streams[i].prompt, {.add_special = !special, .parse_special = special}));
    if (streams[i].prompt.empty())
      return fail(ErrorCode::invalid_argument, "prompt {} is empty; give it at least one character", i + 1);
    request.sampling = a.sampling;
    request.sampling.seed += i;
    request.max_tokens = a.tokens;
    if (!a.ignore_eos) request.end_tokens = text.end_tokens();
    auto id = engine.submit(std::move(request));
    if (!id) return fail(id.error().code, "prompt {}: {}", i + 1, id.error().message);
    index[*id] = i;
    detokenizers.emplace_back(text.tokenizer, text::Detokenizer::Options{.skip_special = true, .at_start = false});
  }
  Totals totals;
  while (!engine.idle() && interrupted == 0) {
    COHORT_ASSIGN(const StepReport report, engine.step());
    totals.add(report);
    for (const TokenEvent& event : report.events) {
      const size_t i = index.at(event.sequence);
      Stream& s = streams[i];
      s.finish = event.finish;
      s.error = event.error.message;
      if (event.finish == FinishReason::failed) continue;
      s.tokens.push_back(event.sample.token);
      std::string piece;
      if (event.finish != FinishReason::end_token) piece = detokenizers[i].push(event.sample.token);
      if (event.finish != FinishReason::none) piece += detokenizers[i].finish();
      s.text += piece;
      show(i, piece);
    }
  }
  for (const auto& [id, i] : index) engine.cancel(id);
  return totals;
}

int continue_prompts(Engine& engine, const TextModel& text, const Arguments& a,
                     const std::vector<std::string>& prompts) {
  std::vector<Stream> streams;
  for (const std::string& prompt : prompts)
    streams.push_back({.prompt = prompt, .tokens = {}, .text = {}, .finish = {}, .error = {}});
  Expected<Totals> totals;
  if (a.json) {
    totals = run_streams(engine, text, a, streams, false, [](size_t, const std::string&) {});
    if (totals) print_json(streams, *totals);
  } else {
    StreamView view(prompts, ::isatty(STDOUT_FILENO) != 0);
    totals = run_streams(engine, text, a, streams, false, [&](size_t i, const std::string& piece) {
      view.append(i, piece);
      view.tick();
    });
    if (totals) view.finish();
  }
  if (!totals) return failed(totals.error());
  int exit_code = interrupted != 0 ? 130 : 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].error.empty()) continue;
    fmt::print(stderr, "cohort run: stream {}: {}\n", i + 1, streams[i].error);
    exit_code = 1;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].finish != FinishReason::context) continue;
    fmt::print(stderr, "stream {} stopped at the end of its context ({} positions; -c)\n", i + 1,
               engine.model().context());
  }
  if (!a.json) print_totals(engine, *totals);
  return exit_code;
}

/// Reads lines until the end of input. With a chat template each line is the user's turn of one conversation; without,
/// it is continued.
int interact(Engine& engine, const TextModel& text, const Arguments& a) {
  const bool chat = text.chat_template.has_value();
  if (!text.chat_template_problem.empty())
    fmt::print(stderr, "the model's chat template cannot be used: {}\n", text.chat_template_problem);
  fmt::print(
      stderr, "{} End with Ctrl-D.\n",
      chat ? "Chat: every line is your turn." : "This model has no chat template: type a beginning, it continues.");
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  std::string line;
  while (interrupted == 0) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    Stream stream{.prompt = line, .tokens = {}, .text = {}, .finish = {}, .error = {}};
    if (chat) {
      messages.push_back({{"role", "user"}, {"content", line}});
      ChatOptions options;
      const auto token = [&](std::optional<int32_t> id) {
        return id ? std::optional(std::string(text.tokenizer.token_text(*id))) : std::nullopt;
      };
      options.bos_token = token(text.tokenizer.bos_id());
      options.eos_token = token(text.tokenizer.eos_id());
      auto rendered = render_chat(*text.chat_template, messages, options);
      if (!rendered) return failed(rendered.error());
      stream.prompt = std::move(*rendered);
    }
    std::vector<Stream> streams{stream};
    if (!chat) fmt::print("{}", line);
    auto totals = run_streams(engine, text, a, streams, chat, [](size_t, const std::string& piece) {
      fmt::print("{}", piece);
      std::fflush(stdout);
    });
    fmt::print("\n");
    if (!totals) {
      failed(totals.error());
      if (chat) messages.erase(messages.size() - 1);
      continue;
    }
    if (!streams[0].error.empty()) fmt::print(stderr, "cohort run: {}\n", streams[0].error);
    if (chat) messages.push_back({{"role", "assistant"}, {"content", streams[0].text}});
    print_totals(engine, *totals);
  }
  return 0;
}

int run(Arguments& a) {
  auto prompts = collect_prompts(a);
  if (!prompts) return failed(prompts.error());
  a.sampling.seed = a.seed >= 0 ? static_cast<uint64_t>(a.seed) : std::random_device{}();
  if (a.parallel > 0) a.engine.max_streams = a.parallel;
  // A prompt of a run is read once and continued once: the context need not be what the model could hold.
  auto engine = load_engine("run", a.engine);
  if (engine == nullptr) return 1;
  auto text = load_text_model(engine->model());
  if (!text) return failed(text.error());
  std::signal(SIGINT, [](int) { interrupted = 1; });
  return prompts->empty() ? interact(*engine, *text, a) : continue_prompts(*engine, *text, a, *prompts);
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Continue one or many prompts, or chat when no prompt is given");
  add_engine_flags(*command, a->engine);
  command->add_option("-p,--prompt", a->prompts, "A prompt; give it several times for several streams")
      ->type_name("TEXT");
  command->add_option("-f,--file", a->prompt_file, "A file that is one prompt")->type_name("FILE");
  command
      ->add_option("--prompts", a->prompts_file, "A file with one prompt a line (\\n is a line break): one stream each")
      ->type_name("FILE");
  command
      ->add_option("--parallel", a->parallel,
                   "Streams that run together; with a single prompt: so many continuations of it")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  command->add_option("-n,--tokens", a->tokens, "New tokens of each stream, at most")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", a->seed, "Seed of the sampling; stream i uses seed + i (default: random)")
      ->type_name("S")
      ->check(whole_number);
  command->add_flag("--ignore-eos", a->ignore_eos, "Go on after an end token");
  command->add_flag("--json", a->json, "Print tokens, texts and times as JSON at the end");
  add_sampling_flags(*command, a->sampling);
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
