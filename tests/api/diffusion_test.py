"""A model of block diffusion behind the server, with nothing but the standard library.

usage: diffusion_test.py COHORT MODEL.gguf
"""
import json
import re
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

COHORT, MODEL = sys.argv[1], sys.argv[2]
PROMPTS = [[2, 77, 304, 281], list(range(5, 60)), [9, 8, 7], list(range(100, 140))]


def start(*flags):
    process = subprocess.Popen(
        [COHORT, "serve", "-m", MODEL, "--threads", "1", "--port", "0", "-c", "256", "--diffusion-steps", "4", *flags],
        stdout=subprocess.PIPE, text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if match := re.match(r"Listening on (\S+)", line):
            return process, match.group(1), "".join(lines)
    raise RuntimeError(f"the server ended with {process.wait()}")


class DiffusionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process, cls.url, cls.greeting = start()

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        assert cls.process.wait(20) == 0
        cls.process.stdout.close()

    def ask(self, path, body, url=None):
        request = urllib.request.Request(
            (url or self.url) + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def complete(self, prompt, url=None, **fields):
        body = {"prompt": prompt, "max_tokens": 30, "seed": 5, "ignore_eos": True} | fields
        return json.loads(self.ask("/v1/completions", body, url))

    def test_says_what_it_is(self):
        self.assertIn("canvases of 12 tokens, at most 4 steps each", self.greeting)
        with urllib.request.urlopen(self.url + "/props") as answer:
            props = json.load(answer)
        self.assertEqual(props["diffusion"]["canvas_length"], 12)
        self.assertEqual(props["diffusion"]["max_steps"], 4)

    def test_completion(self):
        answer = self.complete(PROMPTS[0])
        self.assertEqual(answer["usage"]["completion_tokens"], 30)
        self.assertEqual(answer["usage"]["prompt_tokens"], 4)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertTrue(answer["choices"][0]["text"])
        self.assertEqual(answer["choices"], self.complete(PROMPTS[0])["choices"])
        self.assertNotEqual(answer["choices"], self.complete(PROMPTS[0], seed=6)["choices"])
        # Two of the three canvases, and a part of the third, are the same.
        shorter = self.complete(PROMPTS[0], max_tokens=14)
        self.assertEqual(shorter["usage"]["completion_tokens"], 14)
        self.assertTrue(answer["choices"][0]["text"].startswith(shorter["choices"][0]["text"].rstrip("\ufffd")))

    def test_stream_equals_whole(self):
        body = {"prompt": PROMPTS[1], "max_tokens": 30, "seed": 5, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        chunks = [json.loads(line[6:]) for line in self.ask("/v1/completions", body).split("\n")
                  if line.startswith("data: {")]
        text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"])
        self.assertEqual(text, self.complete(PROMPTS[1])["choices"][0]["text"])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 30)

    def test_choices(self):
        two = self.complete(PROMPTS[2], n=2)
        self.assertEqual(len(two["choices"]), 2)
        self.assertNotEqual(two["choices"][0]["text"], two["choices"][1]["text"])
        self.assertEqual(two["choices"][0]["text"], self.complete(PROMPTS[2])["choices"][0]["text"])

    def test_company_and_off_switch_change_nothing(self):
        alone = [self.complete(p)["choices"][0]["text"] for p in PROMPTS]

        def together(url):
            texts = [None] * len(PROMPTS)

            def one(i):
                texts[i] = self.complete(PROMPTS[i], url)["choices"][0]["text"]

            threads = [threading.Thread(target=one, args=(i,)) for i in range(len(PROMPTS))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return texts

        self.assertEqual(together(self.url), alone)
        process, url, _ = start("--no-batching")
        try:
            self.assertEqual(together(url), alone)
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()

    def test_what_makes_no_sense_is_refused_by_name(self):
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
        for field, value in {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "presence_penalty": 1,
                             "frequency_penalty": 1, "repeat_penalty": 1.2, "logit_bias": {"3": 1}, "logprobs": 1,
                             "grammar": 'root ::= "a"', "response_format": schema}.items():
            with self.subTest(field), self.assertRaises(urllib.error.HTTPError) as caught:
                self.complete(PROMPTS[0], **{field: value})
            self.assertEqual(caught.exception.code, 400)
            self.assertIn(f"'{field}'", json.load(caught.exception)["error"]["message"])
            caught.exception.close()
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.complete(list(range(250)), max_tokens=1)
        self.assertEqual(caught.exception.code, 400)
        self.assertIn("244", json.load(caught.exception)["error"]["message"])  # 256 - a canvas of 12
        caught.exception.close()
        # 15 positions hold one canvas: more is refused, not cut.
        self.assertEqual(self.complete(list(range(241)), max_tokens=12)["usage"]["completion_tokens"], 12)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.complete(list(range(241)), max_tokens=13)
        self.assertEqual(caught.exception.code, 400)
        self.assertIn("lower max_tokens to at most 12", json.load(caught.exception)["error"]["message"])
        caught.exception.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
