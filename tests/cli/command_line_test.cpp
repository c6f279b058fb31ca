// What the command line refuses, and how: exit codes and messages that name the flag, the value and the limits.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "program.h"

namespace cohort::cli {
namespace {

TEST(CommandLine, ExitCodes) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({"--version"}).code, 0);
  EXPECT_TRUE(says(run({"--help"}).out, "Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130"));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {}, {"no-such-command"}, {"run"}, tiny({"--no-such-flag"}), tiny({"-n"}), {"bench"}, {"convert", "x"}}) {
    EXPECT_EQ(run(wrong).code, 2);
  }
  EXPECT_EQ(run({"run", "-m", "/no/such/model.gguf", "-p", "x"}).code, 1);
  EXPECT_EQ(run(tiny({"-p", "Hi", "-n", "2"})).code, 0);
}

TEST(CommandLine, BadValuesOfTheEnvironmentNameTheVariable) {
  const auto run_with = [](const char* value, const std::vector<std::string>& arguments) {
    ::setenv("COHORT_STREAMS", value, 1);
    auto result = run(arguments);
    ::unsetenv("COHORT_STREAMS");
    return result;
  };
  auto result = run_with("abc", {"serve", "-m", kTiny});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "COHORT_STREAMS: 'abc' is no whole number from 1 to 65536")) << result.err;
  ::setenv("COHORT_NO_BATCHING", "maybe", 1);
  result = run({"serve", "-m", kTiny});
  ::unsetenv("COHORT_NO_BATCHING");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "COHORT_NO_BATCHING: 'maybe' is none of true, false")) << result.err;
  result = run_with("3", {"serve", "-m", kTiny, "-np", "0"});
  EXPECT_TRUE(says(result.err, "--np: '0' is no whole number")) << result.err;
}

TEST(CommandLine, ValuesAreRefusedWithFlagValueAndLimits) {
  struct Case {
    std::vector<std::string> arguments;
    std::string_view message;
  };
  const std::string synth_output = "/dev/null/x";
  const std::vector<std::string> synth{"synth", "--config", "qwen3-moe-mini", "--type", "q4_0", "-o", synth_output};
  const auto with = [](std::vector<std::string> all, std::vector<std::string> more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (const Case& c : std::vector<Case>{
           {tiny({"-n", "abc"}), "-n: 'abc' is no whole number from 0 to 2147483647"},
           {tiny({"--tokens", "abc"}), "--tokens: 'abc' is no whole number from 0 to 2147483647"},
           {tiny({"--tokens=99999999999"}), "--tokens: '99999999999' is no whole number from 0 to 2147483647"},
           {tiny({"--streams", "0"}), "--streams: '0' is no whole number"},
           {tiny({"-np", "0"}), "--np: '0' is no whole number"},
           {tiny({"--top-k", "1.5"}), "--top-k: '1.5' is no whole number from 0 to 1073741824"},
           {tiny({"--top-p", "nan"}), "--top-p: 'nan' is no number from 0 to 1"},
           {tiny({"--min-p", "2"}), "--min-p: '2' is no number from 0 to 1"},
           {tiny({"--repeat-penalty", "inf"}), "--repeat-penalty: 'inf' is no number from 0.001 to 1000"},
           {tiny({"--repeat-last-n", "-2"}), "--repeat-last-n: '-2' is no whole number from -1 to 1073741824"},
           {tiny({"--seed", "-1"}), "--seed: '-1' is no whole number from 0 to"},
           {tiny({"--parallel", "0"}), "--parallel: '0' is no whole number from 1 to 65536"},
           {tiny({"--no-batching=maybe"}), "--no-batching: 'maybe' is none of true, false, yes, no, on, off, 1, 0"},
           {tiny({"--no-batching=99999999999999999999999"}),
            "--no-batching: '99999999999999999999999' is none of true"},
           {tiny({"--json=2"}), "--json: '2' is none of true"},
           {{"serve", "-m", kTiny, "--no-prefix-cache=7"}, "--no-prefix-cache: '7' is none of true"},
           {{"serve", "-m", kTiny, "--host", "nowhere"}, "--host: 'nowhere' is no address such as 127.0.0.1"},
           {tiny({"-np", "010"}), "--np: '010' is no whole number from 1 to 65536"},
           {{"serve", "--mdoel", kTiny}, "there is no option '--mdoel'; did you mean --model?"},
           {tiny({"--threads", "5000"}), "--threads: '5000' is no whole number from 0 to 1024"},
           {tiny({"-c", "-5"}), "-c: '-5' is no whole number from 0 to 67108864"},
           {tiny({"-np", "0"}), "--np: '0' is no whole number from 1 to 65536"},
           {tiny({"--kv-positions", "x"}), "--kv-positions: 'x' is no whole number from 0 to 17179869184"},
           {tiny({"--kv-type", "q4_0"}), "--kv-type: 'q4_0' is none of f32, f16, bf16, q8_0"},
           {tiny({"--backend", "slow"}), "--backend: 'slow' is none of fast, reference"},
           {tiny({"-p", "caf\xe9"}), "-p: 'caf\xEF\xBF\xBD' is not UTF-8: byte 4 (0xe9)"},
           {with(synth, {"--seed", "-1"}), "--seed: '-1' is no whole number from 0 to"},
           {with(synth, {"-t", "-1"}), "-t: '-1' is no whole number from 0 to 1024"},
           {{"doctor", "-t", "x"}, "-t: 'x' is no whole number from 0 to 1024"},
           {{"bench", "steps", "-m", "x", "-npl", "1,x"}, "--npl: 'x' is no whole number from 1 to 65536"},
           {{"bench", "serve", "--concurrency", "0"}, "--concurrency: '0' is no whole number from 1 to 4096"},
           {{"serve", "-m", "x", "--port", "70000"}, "--port: '70000' is no whole number from 0 to 65535"},
           {{"serve", "-m", kTiny, "--host", "bogus"}, "--host: 'bogus' is no address such as 127.0.0.1"},
           {{"serve", "-m", kTiny, "--port", "0", "-c", "1"}, "the context (-c) is 1; expected at least 2"},
           {{"serve", "-m", kTiny, "--port", "0", "--device", "x"}, "--device: 'x' is none of auto, cpu, cuda"},
           {{"serve", "-m", kTiny, "--api-key", ""}, "--api-key: the value is empty"},
           {{"serve", "-m", kTiny, "--alias", ""}, "--alias: the value is empty"},
           {{"serve", "-m", kTiny, "--cors-origin", "foo"}, "--cors-origin: 'foo' is neither * nor an origin"},
           {{"serve", "-m", kTiny, "--allowed-host", ""}, "--allowed-host: the value is empty"},
           {{"bench", "serve", "--url", "http://host:99999"}, "has a port that is no number from 1 to 65535"},
           {{"bench", "serve", "--url", "http://host:1/v2"}, "has a path that does not end in /v1"},
           {{"convert", "x", "-o", "y", "--jobs", "x"}, "--jobs: 'x' is no whole number from 0 to 1024"},
           {{"quantize", "x", "y", "q8_0", "--jobs", "-1"}, "--jobs: '-1' is no whole number from 0 to 1024"},
           {{"imatrix", "-m", "x", "-f", "y", "-o", "z", "--windows", "x"}, "--windows: 'x' is no whole number from 0"},
           {{"perplexity", "-m", "x", "--stride", "1.5"}, "--stride: '1.5' is no whole number from 0"},
           {{"perplexity", "-m", "x"}, "-f FILE (the text), or --kl-base FILE"},
           {{"rum", "-m", "x"}, "there is no command 'rum'; did you mean run? the commands are run, serve, bench"},
           {{"bench", "setps"}, "cohort bench: there is no command 'setps'; did you mean steps? the commands are"},
           {{"bench"}, "cohort bench needs a command: steps, "},
           {{"fly", "-m", "x"}, "there is no command 'fly'; the commands are run, serve, bench"},
           {tiny({"--thread", "2"}), "there is no option '--thread'; did you mean --threads?"},
           {tiny({"--no_batching"}), "there is no option '--no_batching'; did you mean --no-batching?"},
           {tiny({"--frobnicate=3"}), "there is no option '--frobnicate=3'; see cohort run --help"},
           {{"bench", "steps", "-m", kTiny, "-z", "3"}, "there is no option '-z'; see cohort bench steps --help"},
           {tiny({"extra"}), "'extra' was not expected here; see cohort run --help"},
           {tiny({"-p", ""}), "-p: the value is empty"},
           {tiny({"--device", "tpu"}), "--device: 'tpu' is none of auto, cpu, cuda, cuda:N"},
           {tiny({"--device", "cuda:-1"}), "--device: 'cuda:-1' is none of"},
           {tiny({"--activations", "int8"}), "--activations: 'int8' is for validation and needs --backend reference"},
           {{"synth", "--config", "nope", "--type", "q4_0", "-o", "x"},
            "--config: 'nope' is neither a file nor one of"},
           {{"synth", "--config", "qwen3-moe-mini", "--type", "q4", "-o", "x"}, "--type: 'q4' is none of"}}) {
    const Result result = run(c.arguments);
    EXPECT_EQ(result.code, 2) << c.message;
    EXPECT_TRUE(says(result.err, c.message));
  }
}

TEST(CommandLine, NothingThatIsReadIsWritten) {
  const TestFolder folder;
  namespace fs = std::filesystem;
  const fs::path model = folder / "m.gguf";
  fs::copy_file(kTiny, model);
  const fs::path text = folder.write("t.txt", std::string(4000, 'a'));
  const fs::path config = folder.write("c.json", "{}");
  const auto size = fs::file_size(model);
  const std::string m = model.string(), t = text.string(), c = config.string();
  const std::string importance = (folder / "importance.gguf").string();
  ASSERT_EQ(run({"imatrix", "-m", m, "-f", t, "-o", importance, "-c", "64", "--windows", "1"}).code, 0);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"pack", "-m", m, "-o", m},
                                             {"quantize", m, m, "q8_0"},
                                             {"quantize", m, importance, "q8_0", "--imatrix", importance},
                                             {"imatrix", "-m", m, "-f", t, "-o", m},
                                             {"imatrix", "-m", m, "-f", t, "-o", t},
                                             {"perplexity", "-m", m, "-f", t, "--save-base", t},
                                             {"perplexity", "-m", m, "-f", t, "--save-base", m},
                                             {"synth", "--config", c, "--type", "q8_0", "-o", c}}) {
    const Result result = run(command);
    EXPECT_EQ(result.code, 2) << command[0];
    EXPECT_TRUE(says(result.err, "is a file that is read; choose another output")) << command[0];
  }
  EXPECT_EQ(fs::file_size(model), size);
  EXPECT_EQ(fs::file_size(text), 4000U);
  EXPECT_EQ(fs::file_size(config), 2U);
}

// Before the work, not after it: the model and the text need not even be there.
TEST(CommandLine, OutputsAreCheckedFirst) {
  const std::string nowhere = "/no/such/folder/out";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"pack", "-m", "x", "-o", nowhere},
                                             {"imatrix", "-m", "x", "-f", "y", "-o", nowhere},
                                             {"perplexity", "-m", "x", "-f", "y", "--save-base", nowhere},
                                             {"synth", "--config", "qwen3-moe-mini", "--type", "q8_0", "-o", nowhere},
                                             {"bench", "serve", "--csv", nowhere}}) {
    const Result result = run(command);
    EXPECT_EQ(result.code, 1) << command[0];
    EXPECT_TRUE(says(result.err, "the folder '/no/such/folder' does not exist")) << command[0];
  }
  const TestFolder folder;
  const std::string one = (folder / "x").string();
  EXPECT_TRUE(says(run({"bench", "serve", "--csv", one, "--plot", one}).err, "--csv and --plot name one file"));
}

TEST(CommandLine, AForeignFileIsNotReplacedByPackedWeights) {
  const TestFolder folder;
  namespace fs = std::filesystem;
  fs::copy_file(kTiny, folder / "m.gguf");
  const fs::path foreign = folder.write("m.gguf.packed", "my notes");
  const Result result = run({"run", "-m", (folder / "m.gguf").string(), "-p", "Hi", "-n", "2", "--packed", "auto"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(fs::file_size(foreign), 8U);
}

TEST(CommandLine, OptionsThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(run({"parity", "--experts", "-m", "x"}).code, 2);
  EXPECT_EQ(run({"parity", "-m", "x", "--gate-up", "q4_0"}).code, 2);
  EXPECT_EQ(run({"parity", "--experts", "--soak", "1"}).code, 2);
  EXPECT_EQ(run({"bench", "steps", "-m", "x", "-np", "2"}).code, 2);
  EXPECT_EQ(run(tiny({"-c", "1"})).code, 2);
}

TEST(CommandLine, ZeroThreadsMeanAllCores) {
  TestFolder folder;
  const auto synth = [&](const std::string& name, const std::string& threads) {
    return run(
        {"synth", "--config", "qwen3-moe-mini", "--layers", "1", "--type", "q4_0", "-o", folder / name, "-t", threads});
  };
  EXPECT_EQ(synth("all", "0").code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "all"));
}

TEST(CommandLine, EveryFlagOfTheServerHasItsVariable) {
  const std::string help = run({"serve", "--help"}).out;
  for (const char* name :
       {"ALIAS", "CORS_ORIGIN", "ALLOWED_HOST", "QUEUE", "HTTP_THREADS", "MAX_BODY_MIB", "PREFILL_STALL_MS",
        "PRIORITY_AGING_S", "NO_PREFIX_CACHE", "NO_BATCHING", "BACKEND", "ACTIVATIONS", "API_KEY", "HOST", "PORT"})
    EXPECT_TRUE(says(help, std::string("(Env:COHORT_") + name + ")")) << name;
}

TEST(CommandLine, DoctorSaysWhichDevicesThereAreOrWhyNone) {
  const Result json = run({"doctor", "--repeats", "1", "-t", "1", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  const auto& devices = report.at("cuda_devices");
  EXPECT_EQ(devices.empty(), report.contains("cuda_devices_none"));
  const std::string expected = devices.empty() ? report["cuda_devices_none"] : devices[0].at("description");
  EXPECT_GT(expected.size(), 10U);
  EXPECT_TRUE(says(run({"doctor", "--repeats", "1", "-t", "1"}).out,
                   devices.empty() ? "CUDA devices       none: " : "CUDA device 0 "));
}

TEST(CommandLine, KvPositionsInWholePages) {
  EXPECT_TRUE(says(run(tiny({"-p", "Hi", "-n", "1", "-c", "64", "--kv-positions", "20"})).err, ": 1 whole page of 32"));
  const Result odd = run(tiny({"-p", "Hi", "-n", "1", "-c", "64", "--kv-positions", "100"}));
  EXPECT_EQ(odd.code, 0);
  EXPECT_TRUE(says(odd.err, "note: --kv-positions 100 became 128: 4 whole pages of 32 positions"));
  const Result whole = run(tiny({"-p", "Hi", "-n", "1", "-c", "64", "--kv-positions", "128"}));
  EXPECT_FALSE(says(whole.err, "became"));
  const Result bench = run({"bench", "steps", "-m", kTiny, "--bandwidth", "0", "--kv-positions", "64"});
  EXPECT_EQ(bench.code, 2);
  EXPECT_TRUE(says(bench.err, "(--kv-positions) are given, 64"));
}

}  // namespace
}  // namespace cohort::cli
