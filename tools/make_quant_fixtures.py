#!/usr/bin/env python3
"""Writes the fixtures of src/quant/*_test.cpp from the Python package `gguf` (pip install gguf==0.19.0).

    python3 tools/make_quant_fixtures.py            # rewrites tests/golden/quant/*.txt

The tests make the same random inputs themselves (splitmix64, whole numbers and powers of two only), so the files hold
hashes of the expected bits and only the few blocks with special scales in full. A hash is the sum over all words of
mix(index << 32 | word), modulo 2^64; NaNs count as 0x7fc00000.

decode.txt   random TYPE BLOCKS CHUNK HASH...    blocks from stream(type id); one hash for CHUNK decoded blocks
             special TYPE BLOCK_HEX HASH         scales of zero, infinity, NaN, subnormals, largest, negative
encode.txt   TYPE MODE EXPONENT VALUES HASH      values from row(mode, exponent); hash of the encoded bytes
"""
import itertools
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T, quants

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "quant"
BLOCKS, CHUNK = 2048, 128
# Where the f16 scales of a block lie; IQ1_M keeps the nibbles of its scale apart, MXFP4 and NVFP4 have 8-bit scales.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
    T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0],
    T.IQ1_M: [], T.IQ4_NL: [0], T.IQ4_XS: [0], T.TQ1_0: [52], T.TQ2_0: [64], T.MXFP4: [], T.NVFP4: [],
}
SPECIAL_F16 = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00]
ENCODED = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.F16, T.BF16, T.TQ1_0, T.TQ2_0, T.MXFP4]


# Types that the package does not decode, here by the definition of their layout: (name, id, values, bytes).
Q1_0, Q2_0, Q2_0_G128 = ("q1_0", 41, 128, 18), ("q2_0", 42, 64, 18), ("q2_0_g128", 0x1002A, 128, 34)


def decode_bits(kind: tuple, blocks: np.ndarray) -> np.ndarray:
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.int32)
    if kind is Q1_0:
        return d * (2 * bits - 1).astype(np.float32)
    return d * (bits[:, 0::2] + 2 * bits[:, 1::2] - 1).astype(np.float32)


def mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def stream(seed: int, words: int) -> np.ndarray:
    """splitmix64: `words` u64."""
    step = np.arange(1, words + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mix(np.uint64(seed) + step)


def digest(words: np.ndarray) -> str:
    words = words.astype(np.uint64).ravel()
    return f"{int(mix((np.arange(words.size, dtype=np.uint64) << np.uint64(32)) | words).sum(dtype=np.uint64)):016x}"


def digest_floats(values: np.ndarray) -> str:
    bits = values.astype(np.float32).view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return digest(bits)


def block_bytes(type_: T) -> int:
    return gguf.GGML_QUANT_SIZES[type_][1]


def random_blocks(type_: T, count: int) -> np.ndarray:
    size = count * block_bytes(type_)
    return stream(int(type_), (size + 7) // 8).view(np.uint8)[:size].reshape(count, -1)


def special_blocks(type_: T) -> np.ndarray:
    base = random_blocks(type_, BLOCKS)
    blocks = []
    if SCALES[type_]:
        for values in itertools.islice(itertools.product(SPECIAL_F16, repeat=len(SCALES[type_])), 0, None):
            if len(values) == 2 and (SPECIAL_F16.index(values[0]) + 3 * SPECIAL_F16.index(values[1])) % 4 != 0:
                continue  # a quarter of the pairs is enough
            block = base[len(blocks)].copy()
            for offset, value in zip(SCALES[type_], values):
                block[offset : offset + 2] = np.array([value], dtype="<u2").view(np.uint8)
            blocks.append(block)
    elif type_ == T.IQ1_M:
        for value in SPECIAL_F16:
            block = base[len(blocks)].copy()
            for i in range(4):
                block[49 + 2 * i] = (block[49 + 2 * i] & 0x0F) | (((value >> (4 * i)) & 15) << 4)
            blocks.append(block)
    else:
        count = 4 if type_ == T.NVFP4 else 1
        for value in [0, 1, 2, 3, 7, 8, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]:
            block = base[len(blocks)].copy()
            block[:count] = value
            blocks.append(block)
    return np.stack(blocks)


def row(mode: int, exponent: int, count: int) -> np.ndarray:
    """Values that both languages make exactly: four 16-bit whole numbers added (nearly a bell curve) times a power of two."""
    words = stream(1000 + 16 * mode, count)
    whole = sum(((words >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4)) - 131070
    index = np.arange(count)
    if mode == 1:  # outliers
        whole = np.where(index % 61 == 7, whole * 32, whole)
    elif mode == 2:  # one sign
        whole = np.abs(whole)
    elif mode == 3:  # coarse: many ties
        whole = (whole >> 13) << 13
    elif mode == 4:  # zeros, and blocks of one value
        whole = np.where(index % 512 < 256, 0, 77777)
    elif mode == 5:  # exactly on the steps of a quantiser
        whole = (whole >> 14) * 2048
    return np.ldexp(whole.astype(np.float32), exponent)


def main() -> None:
    ROOT.mkdir(parents=True, exist_ok=True)
    lines = []
    np.seterr(all="ignore")
    for type_ in [T.F16, T.BF16, *SCALES]:
        blocks = random_blocks(type_, BLOCKS)
        decoded = quants.dequantize(blocks, type_)
        hashes = [digest_floats(decoded[i : i + CHUNK]) for i in range(0, BLOCKS, CHUNK)]
        lines.append(" ".join(["random", type_.name.lower(), str(BLOCKS), str(CHUNK), *hashes]))
    for kind in [Q1_0, Q2_0, Q2_0_G128]:
        name, id_, _, size = kind
        blocks = stream(id_, (BLOCKS * size + 7) // 8).view(np.uint8)[: BLOCKS * size].reshape(BLOCKS, size)
        decoded = decode_bits(kind, blocks)
        hashes = [digest_floats(decoded[i : i + CHUNK]) for i in range(0, BLOCKS, CHUNK)]
        lines.append(" ".join(["random", name, str(BLOCKS), str(CHUNK), *hashes]))
        for i, value in enumerate(SPECIAL_F16):
            block = blocks[i : i + 1].copy()
            block[0, :2] = np.array([value], dtype="<u2").view(np.uint8)
            lines.append(f"special {name} {block.tobytes().hex()} {digest_floats(decode_bits(kind, block))}")
    for type_ in SCALES:
        for block in special_blocks(type_):
            decoded = quants.dequantize(block[None, :], type_)
            lines.append(f"special {type_.name.lower()} {block.tobytes().hex()} {digest_floats(decoded)}")
    (ROOT / "decode.txt").write_text("\n".join(lines) + "\n")

    lines = []
    for type_ in ENCODED:
        for mode, exponent in [(0, -17), (0, -30), (0, -40), (1, -20), (2, -17), (3, -17), (4, -16), (5, -14)]:
            values = row(mode, exponent, 4096)
            encoded = quants.quantize(values[None, :], type_).view(np.uint8)
            lines.append(f"{type_.name.lower()} {mode} {exponent} {values.size} {digest(encoded)}")
    (ROOT / "encode.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
