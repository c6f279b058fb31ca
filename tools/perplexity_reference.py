#!/usr/bin/env python3
"""The reference perplexity of a checkpoint in Hugging Face transformers, float32, for `cohort perplexity` to meet.

Protocol, to be repeated exactly by whoever compares:
  text      the first 65536 bytes of each file, cut back to the last whole UTF-8 character; nothing stripped
  tokens    tokenizer.json on the whole text at once, no special tokens added
  chunks    consecutive, not overlapping, 512 tokens each; the last one shorter (dropped if it has one token)
  context   every chunk starts at position 0 with an empty cache, no begin-of-text token in front
  score     every token of a chunk but its first: -log softmax(logits)[token], natural logarithm, from float32 logits
            with the logarithm of the sum of exponentials and the sum over tokens in float64
  result    nats = sum / scored tokens; perplexity = exp(nats); the row `all` pools the tokens of all files
The model runs in float32 from the checkpoint's weights, eager attention, eager experts, TF32 off.

    python tools/perplexity_reference.py --model DIR [--model DIR2] --text FILE... [--csv FILE]

Needs torch, transformers, tokenizers.
"""

import argparse
import csv
import math
import os
import sys

import tokenizers
import torch
import transformers

BYTES = 65536
CONTEXT = 512


def first_bytes(path, count):
    """The first `count` bytes of a UTF-8 file as text, cut back to a whole character."""
    with open(path, "rb") as f:
        data = f.read(count)
    for drop in range(4):
        try:
            return data[: len(data) - drop].decode("utf-8")
        except UnicodeDecodeError:
            continue
    raise SystemExit(f"{path}: not UTF-8")


def score(model, ids):
    """ids [tokens] -> (sum of -log p, scored tokens, chunks) by the protocol above."""
    total, scored, chunks = 0.0, 0, 0
    for start in range(0, len(ids), CONTEXT):
        chunk = torch.tensor([ids[start : start + CONTEXT]])
        if chunk.shape[1] < 2:
            continue
        with torch.inference_mode():
            logits = model(chunk, use_cache=False).logits[0, :-1].double()
        picked = logits.gather(1, chunk[0, 1:, None])[:, 0]
        total += float((torch.logsumexp(logits, -1) - picked).sum())
        scored += chunk.shape[1] - 1
        chunks += 1
    return total, scored, chunks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", required=True, help="Hugging Face folder; may be repeated")
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 files, one per language")
    parser.add_argument("--csv", help="write the rows here as well")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False

    rows = []
    for folder in args.model:
        name = os.path.basename(os.path.normpath(folder))
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        ).eval()
        pooled = [0, 0, 0, 0, 0.0]
        for path in args.text:
            text = first_bytes(path, BYTES)
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            total, scored, chunks = score(model, ids)
            counts = (len(text.encode("utf-8")), len(ids), chunks, scored, total)
            pooled = [a + b for a, b in zip(pooled, counts)]
            rows.append((name, os.path.splitext(os.path.basename(path))[0], *counts))
            print(
                f"{rows[-1][0]:14} {rows[-1][1]:4} {counts[1]:7} tokens {total / scored:.6f} nats "
                f"perplexity {math.exp(total / scored):.4f}",
                flush=True,
            )
        rows.append((name, "all", *pooled))
        print(
            f"{name:14} all  {pooled[1]:7} tokens {pooled[4] / pooled[3]:.6f} nats "
            f"perplexity {math.exp(pooled[4] / pooled[3]):.4f}",
            flush=True,
        )

    if args.csv:
        with open(args.csv, "w", newline="") as f:
            f.write(
                f"# {CONTEXT}-token chunks of the first {BYTES} bytes of each file, protocol: "
                "tools/perplexity_reference.py\n"
            )
            f.write(
                f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, "
                f"tokenizers {tokenizers.__version__}, float32 on the CPU\n"
            )
            out = csv.writer(f, lineterminator="\n")
            out.writerow(("model", "text", "bytes", "tokens", "chunks", "scored", "nats", "perplexity"))
            for *head, total in rows:
                out.writerow((*head, f"{total / head[-1]:.6f}", f"{math.exp(total / head[-1]):.4f}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
