#!/usr/bin/env python3
"""Encodes the tensors of a GGUF file as llama.cpp does, at the types that `cohort quantize` chose, so that the two
encoders can be compared by perplexity and by error.

    quantise_peer.py SOURCE.gguf OURS.gguf PEER.gguf [--imatrix FILE.gguf]

SOURCE is the f32 file, OURS what `cohort quantize` made of it (with the same importance matrix), PEER the copy of OURS
that is written. Needs the Python packages gguf and llama-cpp-cffi (its library has ggml_quantize_chunk).
"""
import argparse
import shutil

import gguf
import numpy as np
from llama._llama_cpp_cpu import ffi, lib


def read_importance(path):
    """Mean squares by tensor name, [experts, cols]; experts without data have ones, as in the field."""
    if path is None:
        return {}
    tensors = {t.name: np.array(t.data, dtype=np.float32) for t in gguf.GGUFReader(path).tensors}
    means = {}
    for name, sums in tensors.items():
        if not name.endswith(".in_sum2"):
            continue
        base = name[: -len(".in_sum2")]
        counts = tensors[base + ".counts"].reshape(-1, 1)
        sums = sums.reshape(len(counts), -1)
        means[base] = np.where(counts > 0, sums / np.maximum(counts, 1), 1).astype(np.float32)
    return means


def encode(kind, values, importance):
    """values [rows, cols] f32 -> bytes."""
    rows, cols = values.shape
    values = np.ascontiguousarray(values, dtype=np.float32)
    out = np.zeros(rows * lib.ggml_row_size(kind, cols), dtype=np.uint8)
    weights = ffi.NULL
    if importance is None and lib.ggml_quantize_requires_imatrix(kind):
        importance = np.ones(cols, dtype=np.float32)
    if importance is not None:
        importance = np.ascontiguousarray(importance, dtype=np.float32)
        weights = ffi.cast("float *", importance.ctypes.data)
    written = lib.ggml_quantize_chunk(kind, ffi.cast("float *", values.ctypes.data), ffi.cast("void *", out.ctypes.data),
                                      0, rows, cols, weights)
    assert written == out.size
    return out


def weighted_error(kind, data, values, importance):
    decoded = gguf.quants.dequantize(data.reshape(values.shape[0], -1), gguf.GGMLQuantizationType(kind))
    weight = 1.0 if importance is None else importance
    return float((weight * (decoded - values) ** 2).sum()), float((weight * values**2).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("ours")
    parser.add_argument("peer")
    parser.add_argument("--imatrix")
    parser.add_argument("--errors", action="store_true", help="print the weighted squared error of both, by type")
    args = parser.parse_args()
    importance = read_importance(args.imatrix)
    source = {t.name: t for t in gguf.GGUFReader(args.source).tensors}
    shutil.copyfile(args.ours, args.peer)
    errors = {}
    with open(args.peer, "r+b") as out:
        for tensor in gguf.GGUFReader(args.ours).tensors:
            kind = int(tensor.tensor_type)
            if kind in (0, 1, 30):
                continue
            shape = [int(n) for n in tensor.shape]
            cols, experts = shape[0], shape[2] if len(shape) == 3 else 1
            values = np.array(source[tensor.name].data, dtype=np.float32).reshape(experts, -1, cols)
            weights = importance.get(tensor.name)
            pieces = []
            for e in range(experts):
                mine = None if weights is None else weights[e if len(weights) == experts else 0]
                pieces.append(encode(kind, values[e], mine))
                if args.errors:
                    ours = np.frombuffer(tensor.data.tobytes(), dtype=np.uint8).reshape(experts, -1)[e]
                    a = weighted_error(kind, ours, values[e], mine)
                    b = weighted_error(kind, pieces[-1], values[e], mine)
                    name = gguf.GGMLQuantizationType(kind).name + (" by importance" if mine is not None else "")
                    total = errors.setdefault(name, [0.0, 0.0, 0.0])
                    total[0] += a[0]
                    total[1] += b[0]
                    total[2] += a[1]
            out.seek(int(tensor.data_offset))
            out.write(np.concatenate(pieces).tobytes())
    for name, (ours, peer, norm) in sorted(errors.items()):
        print(f"{name}: relative error {np.sqrt(ours / norm):.5f} (llama.cpp {np.sqrt(peer / norm):.5f})")


if __name__ == "__main__":
    main()
