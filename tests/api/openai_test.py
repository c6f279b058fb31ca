"""The server as real clients meet it: the openai package, and curl. ctest runs this when the package is installed.

usage: openai_test.py COHORT MODEL.gguf     (exit code 77: skipped)
"""
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed (pip install openai)")
    sys.exit(77)

try:
    import jsonschema
except ImportError:
    jsonschema = None

COHORT, MODEL = sys.argv[1], sys.argv[2]


def start(*flags, environment=None):
    """A server on a free port: (process, url)."""
    process = subprocess.Popen(
        [COHORT, "serve", "-m", MODEL, "--threads", "1", *(("--port", "0") if "--port" not in flags else ()), *flags], stdout=subprocess.PIPE, text=True,
        env=os.environ | (environment or {}),
    )
    for line in process.stdout:
        if match := re.match(r"Listening on (\S+)", line):
            return process, match.group(1)
    raise RuntimeError(f"the server ended with {process.wait()}")


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process, cls.url = start("--api-key", "secret")
        cls.client = openai.OpenAI(base_url=cls.url + "/v1", api_key="secret", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        assert cls.process.wait(20) == 0, "SIGTERM drains and ends well"
        cls.process.stdout.close()

    def complete(self, **fields):
        fields = {"prompt": "Once upon a time", "max_tokens": 20, "seed": 1} | fields
        return self.client.completions.create(model=self.model, **fields)

    def test_completion(self):
        answer = self.complete(logprobs=2)
        self.assertEqual(answer.object, "text_completion")
        self.assertIn(answer.choices[0].finish_reason, ("length", "stop"))
        self.assertEqual(len(answer.choices[0].logprobs.tokens), answer.usage.completion_tokens)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_stream_equals_whole(self):
        whole = self.complete().choices[0].text
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), whole)
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_n_seed_and_stop(self):
        first, again = self.complete(n=2), self.complete(n=2)
        self.assertEqual([c.text for c in first.choices], [c.text for c in again.choices])
        text = first.choices[0].text
        stop = text[len(text) // 2]
        self.assertEqual(self.complete(stop=stop).choices[0].text, text[: text.index(stop)])

    def test_priority(self):
        plain = self.complete().choices[0].text
        for priority in (-5, 0, 1000):
            self.assertEqual(self.complete(extra_body={"priority": priority}).choices[0].text, plain)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"priority": 1001})
        self.assertEqual(caught.exception.param, "priority")
        self.assertIn("-1000 to 1000", str(caught.exception))

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_an_urgent_request_overtakes(self):
        process, url = start("-np", "1")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        ended = []

        def ask(name, answers, priority):
            client.completions.create(model=self.model, prompt=name, max_tokens=400, n=answers, seed=1,
                                      extra_body={"priority": priority, "ignore_eos": True})
            ended.append(name)

        def wait_for(count):
            while True:
                stats = json.loads(subprocess.run(["curl", "-sS", url + "/stats"], check=True, capture_output=True).stdout)
                if stats["running"] + stats["waiting"] >= count:
                    return
                time.sleep(0.01)

        threads = []
        for name, answers, priority in (("long", 40, 2), ("later", 1, 2), ("urgent", 1, 0)):
            threads.append(threading.Thread(target=ask, args=(name, answers, priority)))
            threads[-1].start()
            wait_for(20 if name == "long" else 1)
        for thread in threads:
            thread.join()
        self.assertEqual(ended, ["urgent", "long", "later"])

    def test_chat(self):
        props = json.loads(self.curl("/props", "-H", "Authorization: Bearer secret"))
        messages = [{"role": "user", "content": "Hello"}]
        ask = lambda **more: self.client.chat.completions.create(
            model=self.model, messages=messages, max_completion_tokens=10, seed=3, **more)
        if not props["has_chat_template"]:
            with self.assertRaises(openai.BadRequestError):
                ask()
            return
        whole = ask(logprobs=True, top_logprobs=2)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(len(whole.choices[0].logprobs.content[0].top_logprobs), 2)
        chunks = list(ask(stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), whole.choices[0].message.content)

    def test_schema(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                                   "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
                                                   "size": {"type": ["integer", "null"], "minimum": -5, "maximum": 99}},
                  "required": ["name", "size"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}
        for seed in range(6):
            answer = self.complete(prompt="x", max_tokens=400, seed=seed, extra_body={"response_format": form}).choices[0]
            self.assertEqual(answer.finish_reason, "stop")
            value = json.loads(answer.text)
            if jsonschema:
                jsonschema.validate(value, schema)
        with self.assertRaises(openai.BadRequestError) as caught:
            form["json_schema"]["schema"] = {"not": {}}
            self.complete(extra_body={"response_format": form})
        self.assertIn("'not'", str(caught.exception))

    def test_tools(self):
        props = json.loads(self.curl("/props", "-H", "Authorization: Bearer secret"))
        if not props["has_chat_template"]:
            self.skipTest("the model has no chat template")
        tools = [{"type": "function", "function": {"name": "tide", "description": "The tide at a place.", "parameters": {
            "type": "object", "properties": {"place": {"type": "string", "maxLength": 9}}, "required": ["place"]}}}]
        ask = lambda **more: self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": "Tide?"}], tools=tools, seed=1, max_tokens=300, **more)
        answer = ask(tool_choice="required", parallel_tool_calls=False).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        call = answer.message.tool_calls[0]
        self.assertEqual(call.function.name, "tide")
        self.assertIsInstance(json.loads(call.function.arguments)["place"], str)
        text = "".join(p.function.arguments or "" for c in ask(tool_choice="required", parallel_tool_calls=False, stream=True)
                       for p in c.choices[0].delta.tool_calls or [])
        self.assertEqual(text, call.function.arguments)
        self.assertIn(ask(tool_choice="none").choices[0].finish_reason, ("stop", "length"))

    def test_killed_and_started_again(self):
        process, url = start()
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model=self.model, prompt="x", max_tokens=300, stream=True)
        next(iter(stream))
        process.kill()
        with self.assertRaises(Exception):
            for _ in stream:
                pass
        process.wait(20)
        process.stdout.close()
        again, same = start("--port", url.rsplit(":", 1)[1])
        self.assertEqual(same, url)
        self.assertGreater(len(client.completions.create(model=self.model, prompt="x", max_tokens=5).choices[0].text), 0)
        again.terminate()
        self.assertEqual(again.wait(20), 0)
        again.stdout.close()

    def test_retrieve(self):
        self.assertEqual(self.client.models.retrieve(self.model), self.client.models.list().data[0])
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4o")

    def test_labels(self):
        plain = self.complete().choices[0].text
        labels = {"metadata": {"run": "7"}, "store": False, "prompt_cache_key": "k", "safety_identifier": "s"}
        self.assertEqual(self.complete(extra_body=labels).choices[0].text, plain)

    def test_flags_from_the_environment(self):
        environment = {"COHORT_ALIAS": "named", "COHORT_ALLOWED_HOST": "one.example,two.example", "COHORT_QUEUE": "3",
                       "COHORT_NO_PREFIX_CACHE": "true", "COHORT_NO_BATCHING": "0"}
        process, url = start(environment=environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        self.assertEqual(client.models.list(extra_headers={"Host": "two.example"}).data[0].id, "named")
        with self.assertRaises(openai.PermissionDeniedError):
            client.models.list(extra_headers={"Host": "three.example"})
        for _ in range(2):
            client.completions.create(model="named", prompt="a b c d " * 20, max_tokens=1)
        stats = json.loads(subprocess.run(["curl", "-sS", url + "/stats"], check=True, capture_output=True).stdout)
        self.assertEqual(stats["reused_tokens"], 0)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"frobnicate": 1})
        self.assertIn("frobnicate", str(caught.exception))
        with self.assertRaises(openai.BadRequestError):
            self.complete(max_tokens=10**8)
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="gpt-4o", prompt="x")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.url + "/v1", api_key="wrong", max_retries=0).models.list()

    def test_concurrency_changes_nothing(self):
        prompts = [f"Story {i}: once" for i in range(8)]
        alone = [self.complete(prompt=p).choices[0].text for p in prompts]
        together = [None] * 8

        def run(i):
            together[i] = self.complete(prompt=prompts[i]).choices[0].text

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)

    def curl(self, path, *flags):
        return subprocess.run(["curl", "-sS", "--max-time", "30", *flags, self.url + path], check=True,
                              capture_output=True, text=True).stdout

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self):
        self.assertEqual(json.loads(self.curl("/health")), {"status": "ok"})
        auth = ("-H", "Authorization: Bearer secret")
        self.assertIn("vllm:num_requests_running", self.curl("/metrics", *auth))
        self.assertIn("<title>Cohort</title>", self.curl("/"))
        body = ("-H", "Content-Type: application/json", "-d")
        tokens = json.loads(self.curl("/tokenize", *auth, *body, '{"content":"a b"}'))["tokens"]
        back = self.curl("/detokenize", *auth, *body, json.dumps({"tokens": tokens}))
        self.assertEqual(json.loads(back)["content"], "a b")
        self.assertIn("capacity", json.loads(self.curl("/props", *auth)))
        self.assertEqual(json.loads(self.curl("/slots", *auth)), [])
        self.assertIn("waiting_by_priority", json.loads(self.curl("/stats", *auth)))
        self.assertIn("layers", json.loads(self.curl("/experts", *auth)))
        self.assertEqual(json.loads(self.curl("/v1/models", *auth))["data"][0]["id"], self.model)
        hello = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})
        rendered = json.loads(self.curl("/apply-template", *auth, *body, hello))
        self.assertTrue("Hello" in rendered["prompt"] if "prompt" in rendered else "error" in rendered)
        answer = json.loads(self.curl("/v1/chat/completions", *auth, *body, hello[:-1] + ',"max_tokens":3}'))
        self.assertTrue("choices" in answer if "prompt" in rendered else "error" in answer)
        stream = self.curl("/v1/completions", *auth, *body, '{"prompt":"x","max_tokens":3,"stream":true}')
        self.assertTrue(stream.rstrip().endswith("data: [DONE]"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
