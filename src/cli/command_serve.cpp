// cohort serve: the OpenAI-compatible server and its page.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/counted.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "measure/machine.h"
#include "models/model.h"
#include "server/access.h"
#include "server/server.h"

namespace cohort::cli {
namespace {

using namespace std::chrono_literals;

constexpr size_t kShownBytes = 80;

/// The signals that end the server; every thread is started with them blocked, and only wait_signal() takes them.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

/// True when SIGTERM or SIGINT came within `timeout`.
bool wait_signal(std::chrono::milliseconds timeout) {
  const sigset_t set = ending_signals();
  const timespec time{timeout.count() / 1000, timeout.count() % 1000 * 1000000};
  return sigtimedwait(&set, nullptr, &time) > 0;
}

std::string human(double bytes) {
  constexpr double kUnit = 1024;
  return bytes >= kUnit * kUnit * kUnit ? fmt::format("{:.1f} GiB", bytes / kUnit / kUnit / kUnit)
                                        : fmt::format("{:.0f} MiB", bytes / kUnit / kUnit);
}

/// The host of a URL that leads to what listens on `host`.
std::string reachable_host(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  if (host == "::") return "[::1]";
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

void print_start(const server::Server& server, const server::ServerOptions& o) {
  const auto ready = server.ready();
  const Engine& engine = ready->loop->engine();
  const Capacity c = ready->loop->view().capacity;
  const std::string url = fmt::format("http://{}:{}", reachable_host(o.http.host), server.port());
  fmt::print("{} on {}\n", ready->name, engine.description());
  if (!engine.draft().empty()) fmt::print("Guesses: {}\n", engine.draft());
  if (engine.diffusion().canvas_length > 0) fmt::print("Denoises {}\n", canvas_note(engine));
  // One stream can have no more than all pages.
  const int64_t each = std::min<int64_t>(c.context, int64_t{c.pages} * c.page_positions);
  fmt::print("{}, {} each; {} of {} ({}), weights {}\n", counted(c.max_streams, "stream"), counted(each, "position"),
             counted(c.pages, "KV page"), counted(c.page_positions, "position"),
             human(static_cast<double>(c.page_bytes) * c.pages), human(static_cast<double>(c.weight_bytes)));
  if (int64_t{c.pages} * c.page_positions < c.max_streams * each) {
    fmt::print("The pages hold {} positions, fewer than all streams may have: then streams wait for each other.\n",
               int64_t{c.pages} * c.page_positions);
  }
  if (const std::string note = kv_note(o.engine, c); !note.empty()) fmt::print("{}\n", note);
  if (ready->bandwidth > 0) fmt::print("Memory delivered {:.1f} GB/s while the server started\n", ready->bandwidth);
  if (!ready->text.chat_template_problem.empty())
    fmt::print("The model's chat template cannot be used: {}\n", ready->text.chat_template_problem);
  const std::string key = o.service.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  fmt::print("Listening on {}\n", url);
  if (!server::is_loopback(o.http.host)) {
    fmt::print("Other machines reach it, too ({}){}\n", o.http.host,
               o.service.api_key.empty() ? ", and no key is asked for: --api-key sets one" : "");
  }
  if (ready->text.chat_template && !ready->text.base_model) {
    fmt::print(
        "Try: curl {}/v1/chat/completions{} -H 'Content-Type: application/json' "
        "-d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
        url, key);
  } else {
    fmt::print(
        "Try: curl {}/v1/completions{} -H 'Content-Type: application/json' "
        "-d '{{\"prompt\":\"Once upon a time\",\"max_tokens\":64}}'\n",
        url, key);
  }
  std::fflush(stdout);
}

/// 2 for a value that was given wrong, as for flags that cannot be read; 1 for everything else.
int failed(const Error& error) {
  fmt::print(stderr, "cohort serve: {}\n", error.message);
  return error.code == ErrorCode::invalid_argument ? 2 : 1;
}

void write_to_stderr(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one piece: stderr has no buffer
}

/// What "% of memory speed" is measured against on the CPU; a device measures its own memory.
double measured_bandwidth(const EngineOptions& options) {
  if (options.device.starts_with("cuda")) return 0;
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  return read_bandwidth(std::max(threads, 1), 1).value_or(0);
}

int serve(server::ServerOptions options) {
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  options.service.measure_bandwidth = [engine = options.engine] { return measured_bandwidth(engine); };
  auto server = server::Server::start(options, [terminal](std::string_view what, double fraction) {
    if (terminal) fmt::print(stderr, "\r\033[K{} {:3.0f}%", what, fraction * 100);
  });
  if (!server) return failed(server.error());
  while (true) {
    auto ready = (*server)->wait_ready(100ms);
    if (terminal && (!ready || *ready)) fmt::print(stderr, "\r\033[K");
    if (!ready) return failed(ready.error());
    if (*ready) break;
    // Loading cannot be interrupted half-way, and nothing would be lost.
    if (wait_signal(0ms)) ::_exit(130);
  }
  print_start(**server, options);
  while (!wait_signal(1s)) {
    if (const auto view = (*server)->ready()->loop->view(); view.failed) return 1;  // the loop has logged why
  }
  fmt::print("Draining: unfinished answers go on, new requests are refused. A second signal stops at once.\n");
  std::fflush(stdout);
  (*server)->drain();
  while (!(*server)->drained()) {
    if (wait_signal(50ms)) break;
  }
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<server::ServerOptions>();
  auto body_mib = std::make_shared<double>(16);
  CLI::App* command = app.add_subcommand("serve", "Serve the OpenAI API and a web page over HTTP");
  add_engine_flags(*command, o->engine);
  add_draft_flags(*command, o->engine);
  add_diffusion_flags(*command, o->engine);
  command->add_option("--host", o->http.host, "Address to listen on; the default is reachable from this machine only")
      ->type_name("ADDRESS")
      ->check([](const std::string& host) {
        return server::is_listen_address(host)
                   ? std::string()
                   : fmt::format("'{}' is no address such as 127.0.0.1, 0.0.0.0, ::1 or ::, nor localhost",
                                 printable(host, kShownBytes));
      })
      ->envname("COHORT_HOST")
      ->capture_default_str();
  command->add_option("--port", o->http.port, "Port (0: any that is free)")
      ->check(whole_number(0, 65535))
      ->type_name("PORT")
      ->envname("COHORT_PORT")
      ->capture_default_str();
  command->add_option("--api-key", o->service.api_key, "Clients must send this key (Authorization: Bearer KEY)")
      ->type_name("KEY")
      ->check(not_empty())
      ->envname("COHORT_API_KEY");
  command->add_option("--alias", o->service.alias, "The model's name in the API")
      ->type_name("NAME")
      ->check(not_empty())
      ->envname("COHORT_ALIAS");
  command
      ->add_option("--cors-origin", o->service.cors_origin,
                   "Site whose pages may use the server from a browser, or * (default: only the server's own page)")
      ->type_name("ORIGIN")
      ->envname("COHORT_CORS_ORIGIN")
      ->check([](const std::string& origin) {
        return server::is_origin(origin)
                   ? std::string()
                   : fmt::format(
                         "'{}' is neither * nor an origin such as https://example.org:8443, in lower case and "
                         "without a path",
                         printable(origin, kShownBytes));
      });
  command
      ->add_option("--allowed-host", o->service.allowed_hosts,
                   "Names by which clients may call a server that listens on loopback, besides localhost and addresses "
                   "(*: any name); with them, other names are refused on every address")
      ->type_name("NAME,NAME,...")
      ->envname("COHORT_ALLOWED_HOST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty());
  command->add_option("--queue", o->service.queue_limit, "Streams that may wait beside those that run; more get a 503")
      ->check(whole_number(0, 1 << 30))
      ->type_name("N")
      ->envname("COHORT_QUEUE")
      ->capture_default_str();
  command->add_option("--http-threads", o->http.threads, "Threads for connections, JSON and tokenisation")
      ->type_name("N")
      ->check(whole_number(1, 256))
      ->envname("COHORT_HTTP_THREADS")
      ->capture_default_str();
  command->add_option("--max-body-mib", *body_mib, "Largest request, in MiB")
      ->type_name("N")
      ->check(number(0.001, 4096))
      ->envname("COHORT_MAX_BODY_MIB")
      ->capture_default_str();
  command
      ->add_option("--prefill-stall-ms", o->engine.prefill_stall_ms,
                   "How much longer a step of running streams may take because others' prompts are read (0: as long as "
                   "the step itself takes, or longer when more prompts wait than streams run)")
      ->type_name("MS")
      ->envname("COHORT_PREFILL_STALL_MS")
      ->check(number(0, 60000))
      ->capture_default_str();
  command
      ->add_option("--priority-aging-s", o->engine.priority_aging_s,
                   "Seconds of waiting that are worth one level of a request's priority (0: a request waits as long as "
                   "more urgent ones come)")
      ->type_name("S")
      ->envname("COHORT_PRIORITY_AGING_S")
      ->check(number(0, kMaxPriorityAging))
      ->capture_default_str();
  command
      ->add_flag(
          "--no-prefix-cache", [o](int64_t count) { o->engine.prefix_cache = count <= 0; },
          "Read every prompt from its beginning, also when another one began alike")
      ->envname("COHORT_NO_PREFIX_CACHE");
  command
      ->add_flag(
          "--log-requests",
          [o](int64_t count) {
            if (count > 0) o->service.log_request = write_to_stderr;
          },
          "Write a line of JSON to stderr for each request when it has ended: who, what, how much, how long; never the "
          "text")
      ->envname("COHORT_LOG_REQUESTS");
  command->callback([o, body_mib, &exit_code] {
    o->http.body_limit = static_cast<size_t>(*body_mib * 1024 * 1024);
    exit_code = serve(*o);
  });
}

}  // namespace cohort::cli
