#!/usr/bin/env python3
"""Compares the engine's tokenizers with `tokenizers` and `sentencepiece` on megabytes of mixed text.

    tools/tokenizer_compare.py --tool build/release/tokenize_tool --texts FOLDER_WITH_TXT [--model FOLDER_WITH_TOKENIZER_JSON]

For each family: a tokenizer is trained on a part of the texts, then encoding (with and without special tokens) and decoding are
compared through tokenizer.json and through GGUF metadata. Exit 1 if anything differs. Needs
`pip install tokenizers sentencepiece gguf`.
"""

import argparse
import struct
import subprocess
import sys
import time
from pathlib import Path

import sentencepiece
import tokenizer_families as families
import tokenizer_texts as texts
from tokenizers import Tokenizer

ADD_SPECIAL, PARSE_SPECIAL, SKIP_SPECIAL, DECODE = 1, 2, 4, 8


class Engine:
    """tokenize_tool, one process for one tokenizer."""

    def __init__(self, tool, path):
        self.process = subprocess.Popen(
            [tool, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.seconds = 0.0
        self.bytes = 0

    def answer(self):
        def read(size):
            data = self.process.stdout.read(size)
            if len(data) != size:
                raise RuntimeError("the tool ended: " + self.process.stderr.read().decode(errors="replace"))
            return data

        status, seconds, count = struct.unpack("<IdI", read(16))
        ids = list(struct.unpack(f"<{count}i", read(4 * count)))
        (size,) = struct.unpack("<I", read(4))
        text = read(size).decode("utf-8")
        self.seconds += seconds
        if status:
            raise RuntimeError(text)
        return ids, text

    def encode(self, data, flags):
        try:
            self.process.stdin.write(struct.pack("<II", flags, len(data)) + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        self.bytes += len(data)
        return self.answer()

    def decode(self, ids, flags):
        self.process.stdin.write(struct.pack(f"<II{len(ids)}i", flags | DECODE, len(ids), *ids))
        self.process.stdin.flush()
        return self.answer()[1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Report:
    def __init__(self):
        self.failed = False
        print(f"{'family':14} {'route':6} {'oracle':13} {'texts':>6} {'MB':>6} {'ids differ':>10} {'text differs':>12} {'MB/s':>6} {'oracle':>6}")

    def row(self, family, route, oracle, count, size, ids, decoded, engine, oracle_seconds):
        self.failed |= bool(ids or decoded)
        speed, other = engine.bytes / 1e6 / max(engine.seconds, 1e-9), size / 1e6 / max(oracle_seconds, 1e-9)
        print(
            f"{family:14} {route:6} {oracle:13} {count:6} {size / 1e6:6.2f} {ids:10} {decoded:12} {speed:6.1f} {other:6.1f}",
            flush=True,
        )


def show(kind, data, expected, got):
    at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    print(f"  {kind} at {at}: expected {expected[max(at - 3, 0) : at + 8]!r}, got {got[max(at - 3, 0) : at + 8]!r}")
    print(f"  of {data[:200]!r}{'...' if len(data) > 200 else ''}")


def compare_huggingface(report, family, route, engine, oracle, documents, max_shown=3):
    ids_differ = text_differs = count = size = 0
    seconds = 0.0
    for number, data in enumerate(documents):
        flags = PARSE_SPECIAL | (ADD_SPECIAL if number % 2 else 0) | (SKIP_SPECIAL if number % 4 < 2 else 0)
        if number % 5 == 4:
            flags &= ~PARSE_SPECIAL
        text = data.decode("utf-8", errors="replace")
        oracle.encode_special_tokens = not flags & PARSE_SPECIAL
        start = time.perf_counter()
        expected = oracle.encode(text, add_special_tokens=bool(flags & ADD_SPECIAL)).ids
        seconds += time.perf_counter() - start
        expected_text = oracle.decode(expected, skip_special_tokens=bool(flags & SKIP_SPECIAL))
        ids, decoded = engine.encode(data, flags)
        count += 1
        size += len(data)
        if ids != expected:
            ids_differ += 1
            if ids_differ <= max_shown:
                show("ids", data, expected, ids)
        elif decoded != expected_text:
            text_differs += 1
            if text_differs <= max_shown:
                show("text", data, expected_text, decoded)
    report.row(family, route, "tokenizers", count, size, ids_differ, text_differs, engine, seconds)


def compare_sentencepiece(report, family, route, engine, spm, documents, max_shown=3):
    oracle = sentencepiece.SentencePieceProcessor(model_proto=spm)
    ids_differ = text_differs = count = size = 0
    seconds = 0.0
    for data in documents:
        text = data.decode("utf-8", errors="replace")
        # The library cuts text at NUL and does not look for control symbols; over a few ten thousand tokens its float sums decide
        # between segmentations by their rounding.
        if "\x00" in text or "<tool>" in text or (family.startswith("unigram") and len(data) > 100_000):
            continue
        data = text.encode()
        start = time.perf_counter()
        expected = oracle.encode(text)
        seconds += time.perf_counter() - start
        expected_text = oracle.decode(expected)
        ids, decoded = engine.encode(data, 0)
        count += 1
        size += len(data)
        if ids != expected:
            ids_differ += 1
            if ids_differ <= max_shown:
                show("ids", data, expected, ids)
        elif decoded != expected_text and 0 not in ids:
            text_differs += 1
            if text_differs <= max_shown:
                show("text", data, expected_text, decoded)
    report.row(family, route, "sentencepiece", count, size, ids_differ, text_differs, engine, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/release/tokenize_tool")
    parser.add_argument("--texts", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--model", type=Path, help="a model folder with tokenizer.json, compared as well")
    parser.add_argument("--work", type=Path, default=Path("build/tokenizers"), help="where trained tokenizers are kept")
    parser.add_argument("--vocab-size", type=int, default=6000)
    parser.add_argument("--scale", type=int, default=1, help="multiplies the generated text")
    parser.add_argument("--only", help="names of families, with commas")
    arguments = parser.parse_args()

    paths = sorted(arguments.texts.glob("*.txt"))
    generated = list(texts.generated(arguments.scale))
    documents = [t.encode() for t in texts.prose(paths)] + [t.encode() for t in generated] + list(texts.broken(arguments.scale))
    # Learn from prose and from the other scripts, so that merges exist everywhere.
    training = [p.read_text()[:200_000] for p in paths] + generated[: len(generated) // 2]
    training = [line for text in training for line in text.split("\n") if "<" not in line and "\x00" not in line]
    only = arguments.only.split(",") if arguments.only else None

    report = Report()
    if arguments.model and not only:
        engine = Engine(arguments.tool, arguments.model)
        compare_huggingface(report, arguments.model.name, "json", engine, Tokenizer.from_file(str(arguments.model / "tokenizer.json")), documents)
        engine.close()
    for family in families.all_families(training, arguments.vocab_size, only, arguments.work):
        json_path, gguf_path = families.save(family, arguments.work)
        oracle = Tokenizer.from_str(family.json)
        engine = Engine(arguments.tool, json_path)
        compare_huggingface(report, family.name, "json", engine, oracle, documents)
        engine.close()
        engine = Engine(arguments.tool, gguf_path)
        if family.spm:
            compare_sentencepiece(report, family.name, "gguf", engine, family.spm, documents)
        else:
            compare_huggingface(report, family.name, "gguf", engine, oracle, documents)
        engine.close()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
