#!/usr/bin/env python3
"""Does llama.cpp, from the PyPI wheel `xllamacpp`, compute a golden's tokens from a GGUF file?

    python tools/peer_check.py FILE.gguf GOLDEN_FOLDER [--steps N]

For every prompt of GOLDEN_FOLDER/golden.json and each of the first N greedy steps, the ids so far go in (as ids: no
tokeniser in between) and the two most likely tokens come out. Reports the steps whose token is the golden's, the first
one that is not with its golden margin, and the largest difference of the margin (highest logit minus second highest).
With --text the prompt goes in as text and the number of prompt tokens is compared with the golden's.
Exit status 1 if a step with a margin above --margin gives another token.

llama.cpp keeps K and V in f16, rounds activations to bf16 before bf16 weights and quantises them before quantised ones:
expect margins that differ by 0.02 for f32 files and by 0.08 for bf16. Without xllamacpp it says so and exits with 0.
"""

import argparse
import json
import os
import sys

try:
    import xllamacpp
except ImportError:
    print("peer_check: skipped, since the package xllamacpp is not installed (pip install xllamacpp)")
    sys.exit(0)


def server(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = 1
    return xllamacpp.Server(params)


def complete(engine, prompt):
    """One greedy token: (its id or None where llama.cpp holds back half a character, margin, prompt tokens)."""
    answer = engine.handle_completions(
        {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 2, "ignore_eos": True, "cache_prompt": False}
    )
    if isinstance(answer, str):
        answer = json.loads(answer)
    if "choices" not in answer:
        raise SystemExit(f"llama.cpp: {answer}")
    tokens = answer["usage"]["prompt_tokens"]
    content = (answer["choices"][0].get("logprobs") or {}).get("content") or []
    if not content:
        return None, None, tokens
    best, second = content[0]["top_logprobs"][:2]
    return best["id"], best["logprob"] - second["logprob"], tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf")
    parser.add_argument("golden")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--margin", type=float, default=0.05, help="smaller golden margins may give another token")
    parser.add_argument("--text", action="store_true", help="compare the tokenisation as well")
    args = parser.parse_args()
    with open(os.path.join(args.golden, "golden.json"), encoding="utf-8") as f:
        prompts = json.load(f)
    engine = server(args.gguf)
    failed = False
    for i, entry in enumerate(prompts):
        start, same, hidden, worst, first = len(entry["ids"]), 0, 0, 0.0, ""
        steps = min(args.steps, len(entry["greedy_margin"]))
        for step in range(steps):
            token, margin, _ = complete(engine, entry["greedy_ids"][: start + step])
            want, golden = entry["greedy_ids"][start + step], entry["greedy_margin"][step]
            if token is None:
                hidden += 1
            elif token == want:
                same += 1
                worst = max(worst, abs(margin - golden))
            else:
                first = first or f"; step {step}: {token} for {want}, margin {golden}"
                failed |= golden > args.margin
        text = ""
        if args.text:
            tokens = complete(engine, entry["prompt"])[2]
            text = f"; {tokens} prompt tokens for {start}"
            failed |= tokens != start
        print(
            f"{os.path.basename(args.gguf)} prompt {i}: {same} of {steps} steps the same, {hidden} not shown, "
            f"margins within {worst:.4f}{text}{first}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
