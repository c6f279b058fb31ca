#!/usr/bin/env python3
"""Writes tests/fuzz/seeds/tokenizer and tests/fuzz/tokenizer.dict: small tokenizer.json files, each with a text, that between them
use every component. Usage: tools/make_tokenizer_seeds.py"""

import base64
import json
import struct
from pathlib import Path

FUZZ = Path(__file__).resolve().parent.parent / "tests/fuzz"
SPACE = "\u2581"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT = "It's a caf\u00e9, e\u0301 12 34\n\n <s>b</s>  \u4e2d\U0001f600"


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(field, *parts):
    return {"type": "Sequence", field: list(parts)}


def added(id_, content, **flags):
    return {"id": id_, "content": content, "special": True, **flags}


def bpe(tokens, merges, **options):
    return {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, **options}


def charsmap():
    # One entry: A (0x41) -> B. Units of the double array: the root's offset 1 is scaled to reach unit 0x41 ^ 0x40 ...
    units = [0] * 1024
    units[0] = 256 << 10  # the root's children are at 256 ^ label
    units[256 ^ 0x41] = (512 ^ 256 ^ 0x41) << 10 | 1 << 8 | 0x41
    units[512] = 1 << 31
    blob = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + b"B\0").decode()


def files():
    alphabet = byte_alphabet()
    bytes_ = [alphabet[b] for b in range(256)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    yield "byte_level", {
        "added_tokens": [added(258, "<s>"), added(259, "</s>", rstrip=True, lstrip=True), added(260, "caf\u00e9", special=False, normalized=True, single_word=True)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": sequence("pretokenizers", split({"Regex": QWEN2}), level),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [258], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "ByteLevel"},
        "model": bpe([*bytes_, "ca", "\u0120b"], [["c", "a"], ["\u0120", "b"]], ignore_merges=True),
    }
    characters = ["<unk>", "<s>", "</s>", SPACE, *"abcdefghijklmnopqrstuvwxyz'", SPACE + "a", "it", SPACE + "it"]
    yield "spaces", {
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}, {"type": "Lowercase"}),
        "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"),
        "decoder": sequence(
            "decoders",
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ),
        "model": bpe([*characters, *(f"<0x{b:02X}>" for b in range(0x80, 0x100))], [f"{SPACE} a", "i t", f"{SPACE} it"], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
    }
    yield "unigram", {
        "normalizer": sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": charsmap()}, {"type": "Strip"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True},
        "decoder": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first"},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0], [SPACE, -1], ["a", -2.5], [SPACE + "a", -1.5], ["caf", -3], ["<0xC3>", 0]]},
    }
    simple = bpe(["<unk>", "a", "b", "1", "!", "-"], [], unk_token="<unk>")
    for name, component in {
        "digits": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}),
        "whitespace": {"type": "Whitespace"},
        "whitespace_split": {"type": "WhitespaceSplit"},
        "delimiter": {"type": "CharDelimiterSplit", "delimiter": "-"},
        "fixed": {"type": "FixedLength", "length": 2},
        "classes": split({"Regex": r"[\p{L}&&[^\p{Han}]]+|[[:punct:]\d]+?|\b\w{1,3}(?=\S)|(?<n>a(?i)b)$"}, "MergedWithNext"),
        "inverted": split({"Regex": r"\s+"}, "Removed", True),
        "gpt2": {"type": "ByteLevel", "add_prefix_space": True},
    }.items():
        yield name, {"pre_tokenizer": component, "model": simple}
    for name, component in {
        "nfkd": sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}),
        "nmt": sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, {"type": "ByteLevel"}),
        "nfd": {"type": "NFD"},
    }.items():
        yield name, {"normalizer": component, "model": simple}
    yield "roberta", {"post_processor": sequence("processors", {"type": "ByteLevel"}, {"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 2]}), "model": simple}


def main():
    folder = FUZZ / "seeds/tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    words = set()

    def collect(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                words.add(json.dumps(key))
                collect(inner)
        elif isinstance(value, list):
            for inner in value[:20]:
                collect(inner)
        elif isinstance(value, str) and len(value) < 30:
            words.add(json.dumps(value))

    for number, (name, file) in enumerate(files()):
        (folder / name).write_bytes(json.dumps(file, separators=(",", ":")).encode() + b"\0" + bytes([number % 8]) + TEXT.encode())
        file = {**file, "model": {k: v for k, v in file["model"].items() if k != "vocab"}}
        collect(file)
    words |= {json.dumps(w) for w in ("dropout", "continuing_subword_prefix", "added_tokens", "BertProcessing", "Contiguous", "MergedWithPrevious", "always", "never")}
    words |= {r"\\p{L}", r"\\s+(?!\\S)", "(?i:", "[^", "&&", "{1,3}", "null", "true", "false", "1e9"}
    escaped = sorted("".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word.encode()) for word in words)
    (FUZZ / "tokenizer.dict").write_text("".join(f'"{word}"\n' for word in escaped))
    print(f"{folder}: {len(list(folder.iterdir()))} files")


if __name__ == "__main__":
    main()
