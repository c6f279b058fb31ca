#include "server/api.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/ordered_json.h"
#include "base/printable.h"
#include "base/result.h"
#include "models/model.h"
#include "numerics/version.h"
#include "server/access.h"
#include "server/diffusion.h"
#include "server/generation.h"
#include "server/openai/fields.h"
#include "server/openai/request_extras.h"
#include "server/ui/assets.h"
#include "text/tokenizer/utf8.h"

namespace cohort::server {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

using Ex = std::shared_ptr<Exchange>;

void respond_error(const Ex& exchange, int status, std::string_view message,
                   std::vector<std::pair<std::string, std::string>> headers = {}) {
  exchange->respond({status, "application/json", error_body(status, message), std::move(headers)});
}

void respond_json(const Ex& exchange, const Expected<ordered_json>& result) {
  if (!result) return respond_error(exchange, status_of(result.error()), result.error().message);
  exchange->respond({200, "application/json", dump(*result), {}});
}

void health(Service& service, const Ex& exchange) {
  const auto ready = service.ready();
  if (service.draining) {
    return exchange->respond({503, "application/json", R"({"status":"draining"})", {}});
  }
  if (ready) {
    const LoopView view = ready->loop->view();
    if (view.failed)
      return exchange->respond({500, "application/json", dump({{"status", "failed"}, {"error", view.failure}}), {}});
    return exchange->respond({200, "application/json", R"({"status":"ok"})", {}});
  }
  const Service::Loading loading = service.loading();
  exchange->respond({503,
                     "application/json",
                     dump({{"status", "loading"}, {"what", loading.what}, {"progress", loading.fraction}}),
                     {{"Retry-After", "1"}}});
}

ordered_json model_json(const Ready& ready) {
  const Engine& engine = ready.loop->engine();
  return {{"id", ready.name},
          {"object", "model"},
          {"created", ready.created},
          {"owned_by", "cohort"},
          {"max_model_len", std::min<int64_t>(engine.model().context(), engine.kv_positions())}};
}

Expected<ordered_json> models(const Ready& ready) {
  return ordered_json{{"object", "list"}, {"data", ordered_json::array({model_json(ready)})}};
}

void unknown_model(const Ex& exchange, const Ready& ready, std::string_view name, std::string_view hint) {
  constexpr size_t kShown = 100;
  respond_error(exchange, 404,
                fmt::format("'model' is '{}', which does not exist here; this server has '{}'{}",
                            printable(name, kShown), ready.name, hint));
}

/// "a%2Fb" is "a/b"; a percent sign without two digits stays.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* begin = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(begin, begin + 2, byte, 16).ptr == begin + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

constexpr std::string_view kOneModel = "/v1/models/";

void one_model(const Ready& ready, const Ex& exchange) {
  const std::string name = percent_decoded(std::string_view(exchange->request().path).substr(kOneModel.size()));
  if (name != ready.name) return unknown_model(exchange, ready, name, "");
  respond_json(exchange, model_json(ready));
}

ordered_json capacity_json(const Capacity& c) {
  return {{"context", c.context},       {"streams", c.max_streams},           {"pages", c.pages},
          {"free_pages", c.free_pages}, {"reusable_pages", c.reusable_pages}, {"page_positions", c.page_positions},
          {"page_bytes", c.page_bytes}, {"weight_bytes", c.weight_bytes}};
}

Expected<ordered_json> props(const Ready& ready) {
  const Engine& engine = ready.loop->engine();
  const ModelConfig& config = engine.model().config();
  ordered_json out{{"model", ready.name},
                   {"architecture", config.architecture},
                   {"model_path", engine.model().path().filename().string()},
                   {"version", COHORT_VERSION},
                   {"numerics_version", numerics::kNumericsVersion},
                   {"device", engine.description()},
                   {"draft", engine.draft()},
                   {"diffusion", diffusion_json(engine.diffusion())},
                   {"total_slots", ready.loop->view().capacity.max_streams},
                   {"capacity", capacity_json(ready.loop->view().capacity)},
                   {"layers", config.layers},
                   {"experts", config.experts},
                   {"experts_per_token", config.top_k},
                   {"vocabulary", engine.model().program().vocabulary},
                   {"tokenizer", ready.text.tokenizer.description()},
                   {"has_chat_template", ready.text.chat_template.has_value()},
                   {"base_model", ready.text.base_model},
                   {"bandwidth_gb_per_s", ready.bandwidth},
                   {"chat_template", ready.text.chat_template_source}};
  if (!ready.text.chat_template_problem.empty()) out["chat_template_problem"] = ready.text.chat_template_problem;
  return out;
}

ordered_json slots_json(const LoopView& view) {
  ordered_json out = ordered_json::array();
  for (const SlotView& slot : view.running) {
    out.push_back({{"id", slot.ticket},
                   {"state", slot.status.decoding ? "writing" : "reading"},
                   {"priority", slot.status.priority},
                   {"prompt_tokens", slot.status.prompt},
                   {"cached_positions", slot.status.cached},
                   {"generated_tokens", slot.status.generated},
                   {"pages", slot.status.pages},
                   {"seconds", slot.seconds},
                   {"tokens_per_second", slot.tokens_per_second}});
  }
  return out;
}

/// What steps read by what memory could have delivered in their time. Above 1 where caches hold the weights.
ordered_json roofline_ratio(const Ready& ready, double bytes_per_second) {
  constexpr double kGiga = 1e9;
  if (ready.bandwidth <= 0 || bytes_per_second <= 0) return nullptr;
  return bytes_per_second / (ready.bandwidth * kGiga);
}

/// How many rows chose each expert since the start, by MoE layer.
Expected<ordered_json> experts(const Ready& ready) {
  const std::vector<uint64_t> routes = ready.loop->routes();
  const auto count = static_cast<size_t>(std::max<int64_t>(ready.loop->engine().model().config().experts, 1));
  ordered_json layers = ordered_json::array();
  for (size_t begin = 0; begin + count <= routes.size(); begin += count) {
    layers.push_back(std::vector<uint64_t>(routes.begin() + static_cast<std::ptrdiff_t>(begin),
                                           routes.begin() + static_cast<std::ptrdiff_t>(begin + count)));
  }
  return ordered_json{{"layers", std::move(layers)}};
}

ordered_json by_priority_json(const std::map<int32_t, size_t>& waiting) {
  ordered_json out = ordered_json::object();
  for (const auto& [priority, count] : waiting) out[std::to_string(priority)] = count;
  return out;
}

Expected<ordered_json> stats(const Ready& ready) {
  const LoopView view = ready.loop->view();
  const StepWindow::View& recent = view.recent;
  const double last_rate = view.last.seconds > 0 ? view.last.bytes / view.last.seconds : 0;
  return ordered_json{{"steps", view.steps},
                      {"running", view.running.size()},
                      {"waiting", view.waiting},
                      {"waiting_by_priority", by_priority_json(view.waiting_by_priority)},
                      {"rows_per_second", recent.rows_per_second},
                      {"tokens_per_second", recent.tokens_per_second},
                      {"prompt_tokens", view.prompt_tokens},
                      {"reused_tokens", view.reused_tokens},
                      {"generation_tokens", view.generation_tokens},
                      {"preemptions", view.preemptions},
                      {"recent",
                       {{"steps", recent.steps},
                        {"step_seconds", recent.seconds},
                        {"rows", recent.rows},
                        {"prefill_rows", recent.prefill_rows},
                        {"distinct_experts", recent.distinct_experts},
                        {"roofline_ratio", roofline_ratio(ready, recent.bytes_per_second)}}},
                      {"last_step",
                       {{"seconds", view.last.seconds},
                        {"rows", view.last.rows},
                        {"prefill_rows", view.last.prefill_rows},
                        {"decode_rows", view.last.decode_rows},
                        {"distinct_experts", view.last.distinct_experts},
                        {"bytes", view.last.bytes},
                        {"roofline_ratio", roofline_ratio(ready, last_rate)}}},
                      {"capacity", capacity_json(view.capacity)},
                      {"slots", slots_json(view)}};
}

Expected<ordered_json> tokenize(const Ready& ready, const HttpRequest& request) {
  COHORT_ASSIGN(const json body, parse_body(request.body));
  Fields fields(body, "");
  std::string content;
  bool special = false, parse = true, pieces = false;
  if (!body.contains("content")) return fail(ErrorCode::invalid_argument, "'content' is missing; give a string");
  COHORT_TRY(fields.string("content", content));
  COHORT_TRY(fields.boolean("add_special", special));
  COHORT_TRY(fields.boolean("parse_special", parse));
  COHORT_TRY(fields.boolean("with_pieces", pieces));
  COHORT_TRY(fields.finish());
  const auto encoded = ready.text.tokenizer.encode(content, {.add_special = special, .parse_special = parse});
  if (!encoded) return tl::unexpected<Error>(of_field("content", encoded.error()));
  const std::vector<int32_t>& ids = *encoded;
  if (!pieces) return ordered_json{{"tokens", ids}};
  ordered_json tokens = ordered_json::array();
  for (const int32_t id : ids) {
    const std::string_view piece = ready.text.tokenizer.piece(id);
    ordered_json one{{"id", id}};
    if (text::is_valid_utf8(piece)) {
      one["piece"] = piece;
    } else {  // as llama.cpp: the bytes
      one["piece"] = ordered_json::array();
      for (const char c : piece) one["piece"].push_back(static_cast<unsigned char>(c));
    }
    tokens.push_back(std::move(one));
  }
  return ordered_json{{"tokens", std::move(tokens)}};
}

Expected<ordered_json> detokenize(const Ready& ready, const HttpRequest& request) {
  COHORT_ASSIGN(const json body, parse_body(request.body));
  Fields fields(body, "");
  const json* tokens = fields.take("tokens");
  if (tokens == nullptr || !tokens->is_array())
    return fail(ErrorCode::invalid_argument, "'tokens' is missing or no array; give token ids");
  bool skip = false;
  COHORT_TRY(fields.boolean("skip_special", skip));
  COHORT_TRY(fields.finish());
  std::vector<int32_t> ids;
  for (const json& token : *tokens) {
    if (!token.is_number_integer() || token.get<int64_t>() < 0 || token.get<int64_t>() > INT32_MAX)
      return fail(ErrorCode::invalid_argument, "'tokens' holds {}; expected token ids", shown(token));
    ids.push_back(token.get<int32_t>());
  }
  auto content = ready.text.tokenizer.decode(ids, skip);
  if (!content) return tl::unexpected<Error>(of_field("tokens", content.error()));
  return ordered_json{{"content", std::move(*content)}};
}

Expected<ordered_json> apply_template(const Ready& ready, const HttpRequest& request) {
  COHORT_ASSIGN(const json body, parse_body(request.body));
  Fields fields(body, "");
  const json* messages = fields.take("messages");
  if (messages == nullptr) return fail(ErrorCode::invalid_argument, "'messages' is missing; give an array");
  COHORT_ASSIGN(const ordered_json parsed, parse_messages(*messages, "messages"));
  GenerationRequest shape;
  if (const json* tools = fields.take("tools")) {
    COHORT_ASSIGN(const ordered_json ordered, parse_ordered_json(request.body, "the body"));
    COHORT_TRY(parse_tools(*tools, ordered.at("tools"), shape));
  }
  bool prompt = true;
  COHORT_TRY(fields.boolean("add_generation_prompt", prompt));
  COHORT_ASSIGN(const ordered_json variables, parse_template_variables(fields));
  COHORT_TRY(fields.finish());
  COHORT_ASSIGN(MarkedText rendered, render_messages(ready.text, parsed, shape.tools, prompt, variables));
  return ordered_json{{"prompt", std::move(rendered.text)}};
}

void generate(const std::shared_ptr<const Ready>& ready, Api api, const Ex& exchange) {
  auto request = parse_generation_request(api, exchange->request().body);
  if (!request) return respond_error(exchange, status_of(request.error()), request.error().message);
  if (!request->model.empty() && request->model != ready->name)
    return unknown_model(exchange, *ready, request->model, " ('model' may be left out)");
  Generation::start(exchange, ready, std::move(*request));
}

/// A page file has the type of its ending.
std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "image/svg+xml";
}

const Asset* find_asset(std::string_view path) {
  const std::string_view name = path == "/" ? "index.html" : path.substr(std::min<size_t>(path.size(), 1));
  const auto found = std::ranges::find(assets(), name, &Asset::name);
  return found == assets().end() ? nullptr : &*found;
}

void respond_asset(const Ex& exchange, const Asset& asset) {
  exchange->respond({200,
                     std::string(type_of(asset.name)),
                     std::string(asset.bytes),
                     {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"}}});
}

struct Route {
  std::string_view method, path;
  void (*call)(const std::shared_ptr<const Ready>& ready, const Ex& exchange);
};

constexpr std::array kRoutes{
    Route{"GET", "/v1/models", [](const auto& ready, const Ex& e) { respond_json(e, models(*ready)); }},
    Route{"GET", kOneModel, [](const auto& ready, const Ex& e) { one_model(*ready, e); }},
    Route{"GET", "/props", [](const auto& ready, const Ex& e) { respond_json(e, props(*ready)); }},
    Route{"GET", "/slots", [](const auto& ready, const Ex& e) { respond_json(e, slots_json(ready->loop->view())); }},
    Route{"GET", "/stats", [](const auto& ready, const Ex& e) { respond_json(e, stats(*ready)); }},
    Route{"GET", "/experts", [](const auto& ready, const Ex& e) { respond_json(e, experts(*ready)); }},
    Route{"GET", "/metrics",
          [](const auto& ready, const Ex& e) {
            e->respond({200,
                        "text/plain; version=0.0.4; charset=utf-8",
                        ready->loop->prometheus(ready->name, ready->bandwidth),
                        {}});
          }},
    Route{"POST", "/tokenize", [](const auto& ready, const Ex& e) { respond_json(e, tokenize(*ready, e->request())); }},
    Route{"POST", "/detokenize",
          [](const auto& ready, const Ex& e) { respond_json(e, detokenize(*ready, e->request())); }},
    Route{"POST", "/apply-template",
          [](const auto& ready, const Ex& e) { respond_json(e, apply_template(*ready, e->request())); }},
    Route{"POST", "/v1/completions", [](const auto& ready, const Ex& e) { generate(ready, Api::completions, e); }},
    Route{"POST", "/v1/chat/completions", [](const auto& ready, const Ex& e) { generate(ready, Api::chat, e); }},
};

void preflight(const Service& service, const Ex& exchange) {
  std::vector<std::pair<std::string, std::string>> headers{{"Allow", "GET, HEAD, POST, OPTIONS"}};
  if (!service.options().cors_origin.empty()) {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    // Clients' packages send headers of their own (X-Stainless-...); the star stands for all but Authorization.
    headers.emplace_back("Access-Control-Allow-Headers", "Authorization, *");
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  exchange->respond({204, "text/plain", "", std::move(headers)});
}

void wrong_method(const Ex& exchange, std::string_view path, std::string_view method) {
  const std::string allow = method == "GET" ? "GET, HEAD" : std::string(method);
  respond_error(exchange, 405, fmt::format("{} needs {}", path, method), {{"Allow", allow}});
}

}  // namespace

void handle(Service& service, const Ex& exchange) {
  constexpr size_t kShown = 100;
  const HttpRequest& request = exchange->request();
  if (!host_allowed(service.options(), request.host)) {
    const std::string name = printable(request.host, kShown);
    return respond_error(
        exchange, 403,
        fmt::format("the request's Host is '{0}', a name that this server does not go by; use localhost "
                    "or an address, or start the server with --allowed-host {0}",
                    name.substr(0, name.rfind(':'))));
  }
  if (request.method == "OPTIONS") return preflight(service, exchange);
  if (request.path == "/health") {
    return request.method == "GET" ? health(service, exchange) : wrong_method(exchange, request.path, "GET");
  }
  if (const Asset* asset = find_asset(request.path)) {
    return request.method == "GET" ? respond_asset(exchange, *asset) : wrong_method(exchange, request.path, "GET");
  }
  const auto route = std::ranges::find_if(kRoutes, [&](const Route& r) {
    return r.path == request.path || (r.path == kOneModel && request.path.starts_with(r.path));
  });
  if (route == kRoutes.end()) {
    return respond_error(exchange, 404, fmt::format("there is nothing at {}", printable(request.path, kShown)));
  }
  if (!authorised(service.options(), request)) {
    return respond_error(exchange, 401, "the API key is missing or wrong; send 'Authorization: Bearer KEY'",
                         {{"WWW-Authenticate", "Bearer"}});
  }
  if (request.method != route->method) return wrong_method(exchange, route->path, route->method);
  // Pages of other sites cannot send this type without asking first, so they cannot use a server on loopback.
  if (request.method == "POST" && !is_json(request.content_type))
    return respond_error(exchange, 415, "the body must be JSON; send 'Content-Type: application/json'");
  const auto ready = service.ready();
  if (!ready) return respond_error(exchange, 503, "the model is being loaded; see /health", {{"Retry-After", "1"}});
  if (service.draining && request.method == "POST")
    return respond_error(exchange, 503, "the server is shutting down", {{"Retry-After", "1"}});
  route->call(ready, exchange);
}

}  // namespace cohort::server
