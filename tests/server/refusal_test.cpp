// What is refused, with which status, and which field the error names.
#include <cstring>
#include <fstream>

#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;

class RefusalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ServerOptions options;
    options.engine.model = std::filesystem::path(COHORT_SOURCE_DIR) / "models/libris-q8_0.gguf";
    options.engine.context = 512;
    options.engine.threads = 2;
    options.engine.max_streams = 4;
    options.service.queue_limit = 60;
    server_ = new TestServer(options);
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void TearDown() override { EXPECT_TRUE(server_->no_page_leaked()); }

  static json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static json chat(const json& more) {
    json request{{"messages", {user("Tell me of a captain.")}}, {"seed", 3}, {"max_tokens", 200}};
    request.update(more);
    return request;
  }
  static json function(json members) {
    members["name"] = "look";
    return {{"type", "function"}, {"function", std::move(members)}};
  }
  /// A 400 (or another `status`) of the client's, whose param is `param` (null: none) and whose message has `word`.
  static void expect_refused(const char* path, const json& request, const json& param, std::string_view word,
                             int status = 400) {
    const Answer answer = server_->post(path, request);
    ASSERT_EQ(answer.status, status) << request.dump().substr(0, 300) << "\n" << answer.body;
    const json error = answer.json()["error"];
    EXPECT_EQ(error["param"], param) << answer.body;
    EXPECT_EQ(error["type"], status == 404 ? "not_found_error" : "invalid_request_error");
    EXPECT_NE(error["message"].get<std::string>().find(word), std::string::npos) << answer.body;
  }
  static constexpr const char* kCompletions = "/v1/completions";
  static constexpr const char* kChat = "/v1/chat/completions";
  static TestServer* server_;
};
TestServer* RefusalTest::server_ = nullptr;

TEST_F(RefusalTest, NamesTheField) {
  const auto with = [](const json& fields) {
    json request = completion("x", 2);
    request.update(fields);
    return request;
  };
  expect_refused(kCompletions, with({{"prompt", std::vector<int>(600, 5)}}), "prompt", "600");
  expect_refused(kCompletions, with({{"prompt", {1, 100000}}}), "prompt", "100000");
  expect_refused(kCompletions, with({{"max_tokens", 512}}), "max_tokens", "512");
  expect_refused(kCompletions, with({{"logit_bias", {{"100000", 1}}}}), "logit_bias", "100000");
  expect_refused(kCompletions, with({{"model", "gpt-4o"}}), "model", "gpt-4o", 404);
  expect_refused(kCompletions, with({{"frobnicate", 1}}), "frobnicate", "unknown");
  std::string words;
  for (int i = 0; i < 700; ++i) words += "word ";
  expect_refused(kChat, chat({{"messages", {user(words)}}}), "messages", "512");
  expect_refused(kChat, chat({{"chat_template_kwargs", {{"messages", json::array()}}}}),
                 "chat_template_kwargs.messages", "sets");
  expect_refused("/detokenize", {{"tokens", {1, 1 << 30}}}, "tokens", "vocabulary");
  const Answer syntax = server_->post_text(kCompletions, "{\"prompt\": }");
  EXPECT_EQ(syntax.status, 400);
  EXPECT_TRUE(syntax.json()["error"]["param"].is_null()) << syntax.body;
  const Answer twice = server_->post_text("/tokenize", R"({"content":"a","content":"b"})");
  EXPECT_EQ(twice.status, 400);
  EXPECT_TRUE(twice.json()["error"]["param"].is_null()) << twice.body;
}

TEST_F(RefusalTest, LabelsChangeNothingAndHaveTheirTypes) {
  const json plain = server_->post(kCompletions, completion("x", 4)).json();
  json labelled = completion("x", 4);
  labelled.update({{"metadata", {{"run", "7"}}},
                   {"store", true},
                   {"prompt_cache_key", "k"},
                   {"safety_identifier", "s"},
                   {"user", "u"}});
  EXPECT_EQ(server_->post(kCompletions, labelled).json()["choices"], plain["choices"]);
  labelled["stream"] = true;
  labelled["stream_options"] = {{"include_obfuscation", false}};
  EXPECT_EQ(server_->post(kCompletions, labelled).status, 200);
  labelled["stream_options"] = {{"include_obfuscation", 1}};
  expect_refused(kCompletions, labelled, "stream_options.include_obfuscation", "true or false");
  const auto refused = [](const char* name, const json& value, std::string_view word) {
    json request = completion("x", 2);
    request[name] = value;
    expect_refused(kCompletions, request, name, word);
  };
  refused("metadata", "a", "object of strings");
  refused("metadata", {{"run", 7}}, "run");
  refused("store", "yes", "true or false");
  refused("prompt_cache_key", 1, "string");
  refused("safety_identifier", true, "string");
}

TEST_F(RefusalTest, UnknownFieldsNearToKnownOnesAreGuessed) {
  const auto refused = [](const char* name, std::string_view word) {
    json request = completion("x", 2);
    request[name] = 1;
    expect_refused(kCompletions, request, name, word);
  };
  for (const char* name : {"maxtokens", "maxTokens", "max_token", "n_predict"})
    refused(name, "did you mean 'max_tokens'?");
  refused("guided_json", "did you mean 'response_format'?");
  refused("temprature", "did you mean 'temperature'?");
  refused("xy", "remove it");
  json request = completion("x", 2);
  request["stream"] = true;
  request["stream_options"] = {{"include_usages", true}};
  expect_refused(kCompletions, request, "stream_options.include_usages",
                 "did you mean 'stream_options.include_usage'?");
}

TEST_F(RefusalTest, NothingIsIgnored) {
  const auto with = [](const json& fields) {
    json request = completion("x", 2);
    request.update(fields);
    return request;
  };
  expect_refused(kCompletions, with({{"repetition_penalty", 1.1}, {"repeat_penalty", 1.2}}), "repetition_penalty",
                 "1.2");
  EXPECT_EQ(server_->post(kCompletions, with({{"repetition_penalty", 1.1}, {"repeat_penalty", 1.1}})).status, 200);
  EXPECT_EQ(server_->post(kCompletions, with({{"repetition_penalty", 1.1}})).status, 200);
  for (const char* key : {"01", "-0", "+1", " 1", "1.0", ""})
    expect_refused(kCompletions, with({{"logit_bias", {{key, 1}}}}), "logit_bias", "token id");
  expect_refused(kCompletions, with({{"grammar", ""}}), "grammar", "empty");

  const json call{{"id", "c1"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", "{}"}}}};
  const auto said = [&](json calls) {
    return json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {std::move(calls)}}};
  };
  const auto result = [](const json& fields) {
    json message{{"role", "tool"}, {"content", "42"}};
    message.update(fields);
    return message;
  };
  const auto changed = [&](const json& function) {
    json one = call;
    one["function"].update(function);
    return one;
  };
  const auto messages = [&](json list) { return chat({{"messages", std::move(list)}, {"max_tokens", 1}}); };
  EXPECT_EQ(server_->post(kChat, messages({user("a"), said(call), result({{"tool_call_id", "c1"}})})).status, 200);
  EXPECT_EQ(server_->post(kChat, messages({user("a"), said(changed({{"arguments", R"({"":1,"":2})"}}))})).status, 200)
      << "arguments that this server writes may repeat a name";
  expect_refused(kChat, messages({{{"role", "alien"}, {"content", "a"}}}), "messages[0].role", "developer");
  expect_refused(kChat, messages({{{"content", "a"}}}), "messages[0].role", "missing");
  expect_refused(kChat, messages({user("a"), said(call), result(json::object())}), "messages[2].tool_call_id",
                 "missing");
  expect_refused(kChat, messages({user("a"), said(call), result({{"tool_call_id", "c2"}})}), "messages[2].tool_call_id",
                 "c2");
  expect_refused(kChat, messages({result({{"tool_call_id", "c1"}}), said(call)}), "messages[0].tool_call_id", "c1");
  for (const char* role : {"user", "system", "assistant"}) {
    expect_refused(kChat, messages({user("a"), {{"role", role}}}), "messages[1].content", "missing");
    expect_refused(kChat, messages({user("a"), {{"role", role}, {"content", nullptr}}}), "messages[1].content",
                   "missing");
  }
  // What OpenAI's own answers have is taken back when it says nothing.
  json answer{{"role", "assistant"}, {"content", "x"}, {"annotations", json::array()}, {"audio", nullptr}};
  EXPECT_EQ(server_->post(kChat, messages({user("a"), answer, user("b")})).status, 200);
  answer["annotations"] = {1};
  expect_refused(kChat, messages({user("a"), answer}), "messages[1].annotations", "not supported");
  expect_refused(kChat, chat({{"reasoning_effort", "huge"}}), "reasoning_effort", "minimal");
  expect_refused(kChat, chat({{"reasoning_effort", "low"}}), "reasoning_effort", "chat template");
  expect_refused(kCompletions, with({{"reasoning_effort", "low"}}), "reasoning_effort", "not supported");
  json asked = user("a");
  asked["tool_calls"] = {call};
  expect_refused(kChat, messages({asked}), "messages[0].tool_calls", "assistant");
  asked = user("a");
  asked["tool_call_id"] = "c1";
  expect_refused(kChat, messages({asked}), "messages[0].tool_call_id", "tool");
  for (const json& arguments : {json("{"), json("5"), json("[]"), json(5), json(nullptr)}) {
    expect_refused(kChat, messages({user("a"), said(changed({{"arguments", arguments}}))}),
                   "messages[1].tool_calls[0].function.arguments", "object");
  }
  json extra = call;
  extra["bogus"] = 1;
  expect_refused(kChat, messages({user("a"), said(extra)}), "messages[1].tool_calls[0].bogus", "unknown");
}

/// The bundled model with another chat template, which is written over its own.
std::filesystem::path model_with_template(std::string source) {
  const std::filesystem::path own = std::filesystem::path(COHORT_SOURCE_DIR) / "models/libris-draft-q8_0.gguf";
  std::ifstream in(own, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const size_t key = bytes.find("tokenizer.chat_template");
  const size_t begin = bytes.find("{%", key);
  uint64_t size = 0;
  if (key == std::string::npos || begin == std::string::npos) throw std::runtime_error("no chat template");
  std::memcpy(&size, bytes.data() + begin - sizeof size, sizeof size);
  if (source.size() > size) throw std::runtime_error("the template is too long");
  source.resize(size, ' ');
  bytes.replace(begin, size, source);
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "refusing-template.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(TemplateErrors, AreA400AndLogged) {
  ServerOptions options;
  options.engine.model = model_with_template("{{ raise_exception('only captains may speak') }}");
  options.engine.context = 512;
  const TestServer server(options);
  const json messages{{{"role", "user"}, {"content", "Tell me."}}};
  for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
    ::testing::internal::CaptureStderr();
    const Answer answer = server.post(path, {{"messages", messages}});
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], "messages") << answer.body;
    EXPECT_NE(answer.body.find("only captains may speak"), std::string::npos) << answer.body;
    EXPECT_NE(log.find("a chat template failed: template line 1: only captains may speak"), std::string::npos) << log;
  }
  EXPECT_EQ(server.post("/v1/completions", completion("still there", 3)).status, 200);
  EXPECT_TRUE(server.no_page_leaked());
  std::filesystem::remove(options.engine.model);
}

TEST_F(RefusalTest, MoreSequencesThanAreEverHeldAreA400) {
  json request = completion("", 2);
  request["prompt"] = std::vector<std::string>(65, "a");
  expect_refused(kCompletions, request, "prompt", "65");
  request["prompt"] = "a";
  request["n"] = 65;
  expect_refused(kCompletions, request, "n", "64");
  expect_refused(kChat, chat({{"n", 65}}), "n", "64");
  request["n"] = 64;
  EXPECT_EQ(server_->post(kCompletions, request).status, 200);
}

TEST_F(RefusalTest, GrammarsThatTurnOutToBeTooMuchAreTheClients) {
  std::string grammar = "root ::=";
  for (int i = 0; i < 3000; ++i) grammar += " [a-z]*";
  json request = completion("x", 50);
  request["grammar"] = grammar;
  const Answer answer = server_->post(kCompletions, request);
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
  EXPECT_NE(answer.body.find("too many ways"), std::string::npos) << answer.body;
  request["stream"] = true;
  const auto events = events_of(server_->post(kCompletions, request).body);
  EXPECT_EQ(json::parse(events.back())["error"]["type"], "invalid_request_error") << events.back();
}

TEST_F(RefusalTest, ArgumentsAreObjectsWithTheNamesThatWereGiven) {
  const auto arguments = [&](const json& tool) {
    json answer =
        server_->post(kChat, chat({{"tools", {tool}}, {"tool_choice", "required"}, {"parallel_tool_calls", false}}))
            .json();
    if (!answer.contains("choices")) return answer;
    return json::parse(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>(),
                       nullptr, false);
  };
  EXPECT_EQ(arguments(function(json::object())), json::object()) << "no parameters: no arguments";
  EXPECT_EQ(arguments(function({{"parameters", nullptr}})), json::object());
  const json one = arguments(function(
      {{"parameters", {{"type", "object"}, {"required", {"x"}}, {"properties", {{"x", {{"enum", {1, 2}}}}}}}}}));
  EXPECT_TRUE(one.is_object() && one.size() == 1 && one.contains("x")) << one;
  EXPECT_TRUE(arguments(function({{"parameters", {{"properties", {{"x", {{"enum", {1, 2}}}}}}}}})).is_object());
  const json referred = arguments(function(
      {{"parameters",
        {{"$ref", "#/$defs/p"}, {"$defs", {{"p", {{"type", "object"}, {"properties", {{"x", {{"const", 1}}}}}}}}}}}}));
  EXPECT_TRUE(referred.is_object()) << referred;
  for (const json& parameters :
       {json{{"type", "string"}}, json{{"type", {"object", "null"}}}, json{{"$ref", "#/$defs/p"}},
        json{{"$ref", "#/$defs/p"}, {"$defs", {{"p", {{"type", "array"}}}}}},
        json{{"anyOf", {{{"type", "object"}}, {{"type", "string"}}}}}}) {
    for (const char* choice : {"auto", "required"}) {
      expect_refused(kChat, chat({{"tools", {function({{"parameters", parameters}})}}, {"tool_choice", choice}}),
                     "tools[0].function.parameters", "look");
    }
  }
}

}  // namespace
}  // namespace cohort::server
