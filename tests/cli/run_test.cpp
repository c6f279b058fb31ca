// `cohort run`: prompts from everywhere, the chat, and Ctrl-C.
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/test_folder.h"
#include "program.h"

namespace cohort::cli {
namespace {

using nlohmann::json;

std::vector<std::string> prompts_of(const Result& result) {
  std::vector<std::string> prompts;
  EXPECT_EQ(result.code, 0) << result.err;
  if (result.code != 0) return prompts;
  const json report = json::parse(result.out);
  for (const json& stream : report["streams"]) prompts.push_back(stream["prompt"]);
  return prompts;
}

// ---- guesses ----

TEST(RunDraft, AnswersStayTheSame) {
  const std::string models = COHORT_SOURCE_DIR "/models/";
  const auto answer = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",          "-m",     models + "libris-q8_0.gguf",
                                       "-c",           "256",    "-n",
                                       "24",           "--temp", "0.5",
                                       "--seed",       "3",      "--json",
                                       "--ignore-eos", "-p",     "One day the king went out to hunt, and the queen"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out) : json();
  };
  const json plain = answer({});
  EXPECT_FALSE(plain.contains("guesses"));
  const json guessed = answer({"--draft", models + "libris-draft-q8_0.gguf", "--draft-tokens", "7", "--draft-always"});
  EXPECT_EQ(guessed["streams"], plain["streams"]);
  EXPECT_EQ(guessed["decode_tokens"], plain["decode_tokens"]);
  EXPECT_EQ(guessed["decode_steps"].get<int>() + guessed["guesses"]["right"].get<int>(), plain["decode_steps"]);
}

TEST(RunDraft, WhatCannotBeADraftIsNamed) {
  const Result far = run(tiny({"-n", "1", "-p", "a", "--draft", "lookup", "--draft-tokens", "8"}));
  EXPECT_EQ(far.code, 2);
  EXPECT_TRUE(says(far.err, "--draft-tokens"));
  const Result none = run(tiny({"-n", "1", "-p", "a", "--draft", "no-such-draft.gguf"}));
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(says(none.err, "no-such-draft.gguf"));
  const Result other = run(tiny({"-n", "1", "-p", "a", "--draft", COHORT_SOURCE_DIR "/models/libris-draft-q8_0.gguf"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(says(other.err, "a draft must have the model's vocabulary"));
}

// ---- block diffusion ----

TEST(RunDiffusion, AnswersInCanvases) {
  const auto answer = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",
                                       "-m",
                                       COHORT_SOURCE_DIR "/tests/golden/gguf/diffusion_gemma-bf16.gguf",
                                       "-c",
                                       "128",
                                       "-n",
                                       "20",
                                       "--seed",
                                       "3",
                                       "--ignore-eos",
                                       "--diffusion-steps",
                                       "3",
                                       "-p",
                                       "Hi, Bo",
                                       "-p",
                                       "Ah"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Result together = answer({"--json"}), serial = answer({"--json", "--no-batching"}), text = answer({});
  ASSERT_EQ(together.code, 0) << together.err;
  const json report = json::parse(together.out);
  EXPECT_EQ(report["streams"][0]["tokens"].size(), 20U);
  EXPECT_EQ(report["canvases"]["finished"], 4);
  EXPECT_EQ(report["canvases"]["steps"], 12);
  ASSERT_EQ(serial.code, 0) << serial.err;
  EXPECT_EQ(json::parse(serial.out)["streams"], report["streams"]);
  EXPECT_TRUE(says(text.err, "40 tokens in 4 canvases of 12 rows, 3.0 steps each")) << text.err;

  const Result filtered = answer({"--top-k", "5"});
  EXPECT_EQ(filtered.code, 1);
  EXPECT_TRUE(says(filtered.err, "--top-k")) << filtered.err;
  const Result guessed = answer({"--draft", "lookup"});
  EXPECT_EQ(guessed.code, 1);
  EXPECT_TRUE(says(guessed.err, "--draft lookup")) << guessed.err;
  const auto one = [](const char* flag, const char* value) {
    const char* const model = COHORT_SOURCE_DIR "/tests/golden/gguf/diffusion_gemma-bf16.gguf";
    return run({"run", "-m", model, "-c", "128", "-p", "Hi, Bo", flag, value});
  };
  const Result endless = one("--diffusion-steps", "0");
  EXPECT_EQ(endless.code, 2);
  EXPECT_TRUE(says(endless.err, "--diffusion-steps: '0'")) << endless.err;
  // 128 positions hold 10 canvases of 12 behind the prompt, and a part of the eleventh.
  const Result more = one("-n", "121");
  EXPECT_EQ(more.code, 2);
  EXPECT_TRUE(says(more.err, "in whole canvases of 12; the context has 128: lower -n to at most 120")) << more.err;
  const Result other = run(tiny({"-n", "1", "-p", "a", "--diffusion-steps", "3"}));
  EXPECT_NE(other.code, 0);
  EXPECT_TRUE(says(other.err, "--diffusion-*")) << other.err;
}

// ---- prompts ----

TEST(RunPrompts, AFileIsOnePromptByteForByte) {
  TestFolder folder;
  const auto prompts = [&](std::string_view text) {
    return prompts_of(run(tiny({"-n", "1", "--json", "-f", folder.write("prompt", text)})));
  };
  EXPECT_EQ(prompts("one\ntwo\n"), std::vector<std::string>{"one\ntwo"});
  EXPECT_EQ(prompts("one\n\n"), std::vector<std::string>{"one\n"});
  EXPECT_EQ(prompts("one\r\ntwo\r\n"), std::vector<std::string>{"one\r\ntwo"});
  const Result result = run(tiny({"-n", "1", "-f", folder.write("prompt", "one\r\ntwo\r\n")}));
  EXPECT_TRUE(says(result.err, "holds 1 carriage returns (CR)"));
}

TEST(RunPrompts, BadFilesAreNamed) {
  TestFolder folder;
  const auto error = [&](const char* flag, std::string_view text) {
    const Result result = run(tiny({"-n", "1", flag, folder.write("prompt", text)}));
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_TRUE(says(error("-f", ""), "is empty; a prompt needs at least one character"));
  EXPECT_TRUE(says(error("-f", "\n"), "is empty; a prompt needs at least one character"));
  EXPECT_TRUE(says(error("-f", "one\ntw\xff"), "/prompt' is not UTF-8: line 2, byte 3 (0xff)"));
  EXPECT_TRUE(says(error("--prompts", "one\ntw\xff"), "/prompt' is not UTF-8: line 2, byte 3 (0xff)"));
  EXPECT_TRUE(says(error("--prompts", "\n \n"), "holds no prompt; put one on each line"));
  EXPECT_TRUE(says(run(tiny({"-f", folder / "none"})).err, "-f: cannot open"));
  EXPECT_TRUE(says(run(tiny({"-f", folder.path()})).err, "-f: cannot read"));
}

TEST(RunPrompts, LinesOfWhiteSpaceAreNoted) {
  TestFolder folder;
  const auto path = folder.write("prompts", "one\n\n \t\r\ntwo\\nlines \\\\n\r\n  three");
  const Result result = run(tiny({"-n", "1", "--json", "--prompts", path}));
  EXPECT_EQ(prompts_of(result), (std::vector<std::string>{"one", "two\nlines \\n", "  three"}));
  EXPECT_TRUE(says(result.err, "note: line 3 of '"));
  EXPECT_TRUE(says(result.err, "holds only white space; it is no prompt"));
}

TEST(RunPrompts, PipesArePrompts) {
  EXPECT_EQ(prompts_of(run(tiny({"-n", "1", "--json", "-f", "/dev/stdin"}), "one\ntwo\n")),
            std::vector<std::string>{"one\ntwo"});
  EXPECT_EQ(prompts_of(run(tiny({"-n", "1", "--json", "--prompts", "/dev/stdin"}), "one\ntwo\n")),
            (std::vector<std::string>{"one", "two"}));
  // What a shell's <(...) is, too.
  TestFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "through a pipe\n"; });
  EXPECT_EQ(prompts_of(run(tiny({"-n", "1", "--json", "-f", pipe}))), std::vector<std::string>{"through a pipe"});
  writer.join();
}

TEST(RunPrompts, OnePromptBecomesSeveralStreams) {
  EXPECT_EQ(prompts_of(run(tiny({"-n", "1", "--json", "-p", "x", "--parallel", "3"}))).size(), 3U);
}

// ---- the chat ----

TEST(RunChat, EachLineIsAnsweredAsJson) {
  const Result result = run(tiny({"-n", "3", "--ignore-eos", "--json"}), "Hi, Bo\n\nThe old miller sat.\r\n");
  EXPECT_EQ(result.code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 2U) << result.out;
  EXPECT_EQ(answers[0]["prompt"], "Hi, Bo");
  EXPECT_EQ(answers[1]["prompt"], "The old miller sat.");
  for (const json& answer : answers) {
    EXPECT_EQ(answer["tokens"].size(), 3U);
    EXPECT_EQ(answer["finish_reason"], "length");
    EXPECT_GT(answer["prefill_tokens"], 0);
  }
}

TEST(RunChat, WhatIsTypedIsTextEvenWhenItSpellsASpecialToken) {
  const auto prompt_tokens = [](const std::string& line) {
    const Result result = run(tiny({"-n", "1", "--json"}), line);
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out)["prefill_tokens"].get<int>();
  };
  // As a token it would be one; as text it is at least three.
  EXPECT_GE(prompt_tokens("a<|im_end|>b\n"), prompt_tokens("ab\n") + 3);
}

TEST(RunChat, ABadLineIsNamedAndTheRestIsAnswered) {
  const Result result = run(tiny({"-n", "1", "--json"}), "one\ntw\xff\nthree\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(says(result.err, "line 2 of the input is not UTF-8: byte 3 (0xff)"));
  std::istringstream lines(result.out);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 3U) << result.out;
  EXPECT_TRUE(answers[1].contains("error"));
  EXPECT_TRUE(answers[2].contains("text"));
}

TEST(RunChat, ALineThatDoesNotFitFails) {
  const Result result =
      run(tiny({"-n", "1", "-c", "8"}), "much more than eight tokens, whatever they are: 0123456789\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(says(result.err, "the context of 8 positions"));
  EXPECT_EQ(result.out, "");
}

// ---- Ctrl-C ----

TEST(RunLength, MoreNewTokensThanFitAreAnErrorWithTheNumbers) {
  const auto tokens = [](const std::vector<std::string>& flags) {
    std::vector<std::string> all{"-p", "Hi, Bo", "-c", "32", "--ignore-eos", "--json"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Result result = run(tiny(all));
    EXPECT_EQ(result.code, 0) << result.err;
    const json out = json::parse(result.out);
    EXPECT_EQ(out["streams"][0]["tokens"].size() + out["prefill_tokens"].get<size_t>(), 32U)
        << "nothing else ends this model's text";
    return std::pair(out["streams"][0]["tokens"].size(), out["streams"][0]["finish_reason"].get<std::string>());
  };
  const auto [room, reason] = tokens({"-n", "0"});
  EXPECT_EQ(reason, "length") << "as many as were asked for";
  EXPECT_EQ(tokens({"-n", std::to_string(room)}), std::pair(room, std::string("length")));
  EXPECT_EQ(tokens({}), std::pair(room, std::string("context"))) << "nobody asked for 128";
  const Result more = run(tiny({"-p", "Hi, Bo", "-c", "32", "-n", std::to_string(room + 1)}));
  EXPECT_EQ(more.code, 2);
  EXPECT_EQ(more.out, "");
  EXPECT_TRUE(says(more.err, "33 positions; the context has 32: lower -n to at most " + std::to_string(room)))
      << more.err;
  const Result one = run(tiny({"-p", "Hi, Bo", "-c", "32"}));
  EXPECT_TRUE(says(one.err, "stream 1 stopped at the end of its context (32 positions; -c)")) << one.err;
}

TEST(RunChat, AnAnswerThatFillsTheContextSaysSo) {
  const Result result = run(tiny({"-n", "500", "-c", "32", "--ignore-eos"}), "Hi, Bo\n");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "the answer stopped at the end of the context (32 positions; -c)")) << result.err;
}

/// A generation that no test waits for: the scalar reference needs minutes to fill this model's context.
std::vector<std::string> endless(const std::vector<std::string>& more) {
  std::vector<std::string> all{"run", "-m", kDraft.string(), "--backend", "reference", "--threads", "1", "--temp", "0"};
  all.insert(all.end(), {"-n", "0", "--ignore-eos"});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(RunInterrupt, AGenerationEndsWithWhatHasCome) {
  Program program(endless({"-p", "Hi, Bo"}));
  ASSERT_TRUE(program.wait_for(0, "Hi, Bo")) << program.err();
  program.interrupt();
  EXPECT_EQ(program.finish(), 130) << program.err();
  EXPECT_TRUE(program.out().ends_with("\n"));
}

TEST(RunInterrupt, WaitingForAPromptEndsAtOnce) {
  for (const auto input : {Program::Input::pipe, Program::Input::terminal}) {
    Program program(tiny({}), input);
    ASSERT_TRUE(program.wait_for(1, "End with Ctrl-D"));
    program.interrupt();
    EXPECT_EQ(program.finish(), 130);
  }
}

TEST(RunInterrupt, OnATerminalOnlyTheAnswerEnds) {
  Program program(endless({}), Program::Input::terminal);
  ASSERT_TRUE(program.wait_for(1, "> "));
  program.type("Hi, Bo\n");
  ASSERT_TRUE(program.wait_for_output());
  program.interrupt();
  ASSERT_TRUE(program.wait_for(1, "> ", program.err().size())) << program.err();
  program.type("\x04");  // Ctrl-D
  EXPECT_EQ(program.finish(), 0) << program.err();
}

TEST(RunInterrupt, InAPipeTheProgramEnds) {
  Program program(endless({}));
  program.type("Hi, Bo\nnever said 4711\n");
  ASSERT_TRUE(program.wait_for_output());
  program.interrupt();
  EXPECT_EQ(program.finish(), 130) << program.err();
  EXPECT_FALSE(says(program.out(), "4711"));
}

TEST(RunInterrupt, LoadingEndsAtOnce) {
  // A prompt that never ends keeps the program where loading does: nothing has been generated.
  TestFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Program program(tiny({"-f", pipe}));
  std::ofstream writer(pipe);  // returns when the program has opened its end
  program.interrupt();
  EXPECT_EQ(program.finish(), 130) << program.err();
  EXPECT_EQ(program.out(), "");
}

}  // namespace
}  // namespace cohort::cli
