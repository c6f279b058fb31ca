#!/usr/bin/env python3
"""Writes the small GGUF and safetensors files below tests/fuzz/seeds: seeds of the fuzz targets and fixtures of the unit tests.

Written from the formats' descriptions with struct and json alone, so that the readers are tested against a second opinion.
Usage: tools/make_format_seeds.py [FOLDER]      (default: tests/fuzz/seeds beside this script's folder)
"""

import json
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def array(element, items):
    return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)


def value(kind, item):
    if kind == STRING:
        return string(item)
    if kind == ARRAY:
        return array(*item)
    return struct.pack("<" + CODES[kind], item)


def gguf(entries, tensors, version=3, alignment=32):
    """entries: (key, type, value); tensors: (name, shape with the row first, type id, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    for key, kind, item in entries:
        out += string(key) + struct.pack("<I", kind) + value(kind, item)
    offset = 0
    for name, shape, kind, data in tensors:
        out += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, offset)
        offset += -(-len(data) // alignment) * alignment
    out += b"\0" * (-len(out) % alignment)
    for _, _, _, data in tensors:
        out += data + b"\0" * (-len(data) % alignment)
    return out


def ramp(count):
    return bytes(i % 251 for i in range(count))


def gguf_seeds():
    every_type = [
        ("general.architecture", STRING, "test"),
        ("a.u8", U8, 200), ("a.i8", I8, -100), ("a.u16", U16, 60000), ("a.i16", I16, -30000),
        ("a.u32", U32, 4000000000), ("a.i32", I32, -2000000000), ("a.f32", F32, 0.5), ("a.bool", BOOL, True),
        ("a.string", STRING, "na\u00efve \U0001f600"), ("a.u64", U64, 2**64 - 1), ("a.i64", I64, -(2**63)), ("a.f64", F64, 0.1),
        ("b.u8", ARRAY, (U8, [1, 2, 255])), ("b.i8", ARRAY, (I8, [-1, 127])), ("b.u16", ARRAY, (U16, [65535])),
        ("b.i16", ARRAY, (I16, [-32768])), ("b.u32", ARRAY, (U32, [1, 2**32 - 1])), ("b.i32", ARRAY, (I32, [4, -5, 6])),
        ("b.f32", ARRAY, (F32, [0.25, -1.0])), ("b.bool", ARRAY, (BOOL, [True, False, True])),
        ("b.string", ARRAY, (STRING, ["", "a", "bc", b"\xff\x00"])), ("b.u64", ARRAY, (U64, [2**63])),
        ("b.i64", ARRAY, (I64, [-1])), ("b.f64", ARRAY, (F64, [1e300])), ("b.empty", ARRAY, (STRING, [])),
        ("b.nested", ARRAY, (ARRAY, [(I32, [1, 2]), (STRING, ["x"]), (ARRAY, [(U8, [7])])])),
    ]
    tensors = [
        ("scalar", [], 0, struct.pack("<f", 3.0)),
        ("vector", [3], 0, struct.pack("<3f", 1.0, 2.0, 3.0)),
        ("half", [4, 2], 1, ramp(16)),
        ("brain", [2, 2, 2], 30, ramp(16)),
        ("q8", [64, 3], 8, ramp(204)),
        ("q4_k", [256, 2, 2], 12, ramp(576)),
        ("int", [2, 1, 1, 3], 26, ramp(24)),
    ]
    vocabulary = [
        ("general.architecture", STRING, "llama"), ("general.alignment", U32, 64),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, [chr(97 + i) for i in range(16)])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b", "c d"])),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 16)), ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * 16)),
        ("llama.block_count", U32, 0),
    ]
    split = lambda number: [("split.no", U16, number), ("split.count", U16, 2), ("split.tensors.count", I32, 2)]
    return {
        "every_type.gguf": gguf(every_type, tensors),
        "version2.gguf": gguf(every_type[:4], tensors[:2], version=2),
        "vocabulary.gguf": gguf(vocabulary, [("token_embd.weight", [32, 16], 2, ramp(288))], alignment=64),
        "empty.gguf": gguf([], []),
        "split-00001-of-00002.gguf": gguf([("general.architecture", STRING, "test")] + split(0), [("one", [2], 0, ramp(8))]),
        "split-00002-of-00002.gguf": gguf(split(1), [("two", [3], 0, ramp(12))]),
    }


def safetensors(header, data, pad=True):
    text = json.dumps(header, separators=(",", ":")).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I64": 8, "I32": 4, "I16": 2,
             "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
    header, offset = {"__metadata__": {"format": "pt", "note": "na\u00efve"}}, 0
    for dtype, size in sizes.items():
        header["t." + dtype] = {"dtype": dtype, "shape": [2, 3], "data_offsets": [offset, offset + 6 * size]}
        offset += 6 * size
    header["scalar"] = {"dtype": "F32", "shape": [], "data_offsets": [offset, offset + 4]}
    header["none"] = {"dtype": "F32", "shape": [0, 4], "data_offsets": [offset + 4, offset + 4]}
    small = {"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}
    return {
        "every_type.safetensors": safetensors(header, ramp(offset + 4)),
        "small.safetensors": safetensors(small, ramp(8), pad=False),
        "empty.safetensors": safetensors({}, b""),
    }


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "seeds"
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for kind, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds())):
        (root / kind).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (root / kind / name).write_bytes(data)
            print(f"{root / kind / name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
