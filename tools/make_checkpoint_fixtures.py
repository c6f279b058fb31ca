#!/usr/bin/env python3
"""Writes tests/golden/checkpoints: packed weights as MLX, GPTQ, AWQ, compressed-tensors and FP8 checkpoints hold them,
each with the values they stand for.

    make_checkpoint_fixtures.py FOLDER [--mlx]

MLX tensors come from the mlx package itself (its CPU build), the expected values from its own dequantize. The others are
written to the formats' descriptions. Every method is a folder with config.json, model.safetensors and expected.safetensors
(NAME -> f32 [rows, cols], for each module of one projection).
"""
import argparse
import json
import pathlib
import struct

import numpy as np

ROWS, COLS = 32, 256


def write_safetensors(path, tensors):
    """tensors: name -> (dtype name, shape, bytes)."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(d for _, _, d in tensors.values()))


def array(values, dtype):
    kinds = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "U32": np.uint32, "U8": np.uint8, "I64": np.int64}
    values = np.asarray(values)
    if dtype == "BF16":
        return dtype, values.shape, (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return dtype, values.shape, np.ascontiguousarray(values.astype(kinds[dtype], copy=False)).tobytes()


def bf16(values):
    """Rounded to bf16, as f32."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def pack_along(values, bits, axis):
    """Little-endian stream of `bits`-bit numbers along an axis, as u32 words."""
    values = np.moveaxis(np.asarray(values, np.uint64), axis, -1)
    stream = ((values[..., None] >> np.arange(bits, dtype=np.uint64)) & 1).astype(np.uint8)
    stream = stream.reshape(*values.shape[:-1], -1)
    assert stream.shape[-1] % 32 == 0
    words = np.packbits(stream, axis=-1, bitorder="little").view("<u4")
    return np.moveaxis(words, -1, axis).view(np.int32)


def save(folder, config, tensors, expected):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)
    write_safetensors(folder / "expected.safetensors", {k: array(v, "F32") for k, v in expected.items()})


def gptq(root, rng, bits, group, version, symmetric, ordered=False):
    size = group if group > 0 else COLS
    groups = COLS // size
    codes = rng.integers(0, 1 << bits, (ROWS, COLS))
    scales = (rng.standard_normal((groups, ROWS)) * 0.01).astype(np.float16)
    zeros = np.full((groups, ROWS), 1 << (bits - 1)) if symmetric else rng.integers(1, 1 << bits, (groups, ROWS))
    stored = zeros - 1 if version == "gptq" else zeros
    name = f"gptq{bits}_{'sym' if symmetric else 'asym'}_{version}" + ("_order" if ordered else "")
    group_of = np.arange(COLS) // size
    if ordered:
        rng.shuffle(group_of)
    wide = lambda x: x.T[:, group_of]
    expected = wide(scales.astype(np.float32)) * (codes - wide(zeros)).astype(np.float32)
    tensors = {
        "w.qweight": array(pack_along(codes.T, bits, 0), "I32"),
        "w.qzeros": array(pack_along(stored, bits, 1), "I32"),
        "w.scales": array(scales, "F16"),
        "w.g_idx": array(group_of, "I32"),
    }
    config = {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric,
                                      "desc_act": ordered, "checkpoint_format": version}}
    save(root / name, config, tensors, {"w": expected})


def awq(root, rng):
    groups = COLS // 64
    codes = rng.integers(0, 16, (ROWS, COLS))
    zeros = rng.integers(0, 16, (groups, ROWS))
    scales = (rng.standard_normal((groups, ROWS)) * 0.01).astype(np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(values):  # [n, ROWS]
        words = np.zeros((values.shape[0], ROWS // 8), np.uint32)
        for i, column in enumerate(order):
            words |= values[:, column::8].astype(np.uint32) << np.uint32(4 * i)
        return words.view(np.int32)

    wide = lambda x: np.repeat(x.T, 64, axis=1)
    expected = wide(scales.astype(np.float32)) * (codes - wide(zeros)).astype(np.float32)
    tensors = {"w.qweight": array(pack(codes.T), "I32"), "w.qzeros": array(pack(zeros), "I32"),
               "w.scales": array(scales, "F16")}
    config = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
                                      "zero_point": True}}
    save(root / "awq", config, tensors, {"w": expected})


def compressed(root, rng, bits, symmetric, channel, ordered=False):
    size = COLS if channel else 128
    groups = COLS // size
    codes = rng.integers(0, 1 << bits, (ROWS, COLS))  # plus 2^(bits-1)
    scales = bf16(rng.standard_normal((ROWS, groups)) * 0.01)
    zeros = rng.integers(0, 1 << bits, (ROWS, groups))  # plus 2^(bits-1)
    half = 1 << (bits - 1)
    group_of = np.arange(COLS) // size
    if ordered:
        rng.shuffle(group_of)
    wide = lambda x: x[:, group_of]
    points = np.full((ROWS, groups), half) if symmetric else zeros
    expected = wide(scales) * (codes - wide(points)).astype(np.float32)
    tensors = {"w.weight_packed": array(pack_along(codes, bits, 1), "I32"), "w.weight_scale": array(scales, "BF16"),
               "w.weight_shape": array([ROWS, COLS], "I64")}
    if not symmetric:
        tensors["w.weight_zero_point"] = array(pack_along(np.pad(zeros, ((0, -ROWS % (32 // bits)), (0, 0))), bits, 0), "I32")
    if ordered:
        tensors["w.weight_g_idx"] = array(group_of, "I32")
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "channel" if channel else "group",
               "group_size": None if channel else size}
    if ordered:
        weights["actorder"] = "group"
    config = {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
                                      "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
                                      "ignore": ["lm_head"]}}
    name = f"compressed{bits}_{'sym' if symmetric else 'asym'}{'_channel' if channel else ''}{'_order' if ordered else ''}"
    save(root / name, config, tensors, {"w": expected})


def e4m3(codes):
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(float) - 10))
    return (sign * value).astype(np.float32)


def fp8(root, rng):
    rows, cols = 160, COLS  # the second line of blocks is not full
    codes = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x7E
    codes[0, :256] = np.where((np.arange(256) & 0x7F) == 0x7F, 0, np.arange(256))
    scales = (np.abs(rng.standard_normal((2, cols // 128))) * 1e-3).astype(np.float32)
    expected = np.repeat(np.repeat(scales, 128, 0), 128, 1)[:rows] * e4m3(codes)
    tensors = {"w.weight": ("F8_E4M3", codes.shape, codes.tobytes()), "w.weight_scale_inv": array(scales, "F32")}
    config = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                                      "activation_scheme": "dynamic"}}
    save(root / "fp8", config, tensors, {"w": expected})


def fp8_compressed(root, rng):
    """compressed-tensors' float-quantized: blocks that the matrix does not fill in either direction, or a scale a row."""
    rows, cols = 160, 96
    codes = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x7E
    for strategy, block in (("block", (64, 64)), ("channel", (1, cols))):
        lines, across = -(-rows // block[0]), -(-cols // block[1])
        scales = bf16(np.abs(rng.standard_normal((lines, across))) * 1e-3)
        expected = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[:rows, :cols] * e4m3(codes)
        tensors = {"w.weight": ("F8_E4M3", codes.shape, codes.tobytes()), "w.weight_scale": array(scales, "BF16")}
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy}
        if strategy == "block":
            weights["block_structure"] = list(block)
        config = {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
                                          "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
                                          "ignore": ["lm_head"]}}
        save(root / f"compressed_fp8_{strategy}", config, tensors, {"w": expected})


def mlx(root):
    import mlx.core as mx

    mx.random.seed(7)
    tensors, expected, rules = {}, {}, {}

    def add(name, weights, dtype, **how):
        weights = weights.astype(dtype)
        packed = mx.quantize(weights, **how)
        values = mx.dequantize(*packed, **how).astype(mx.float32)
        if how.get("mode", "affine") == "affine":  # in f32: dequantize rounds to the type of the scales
            values = mx.dequantize(packed[0], packed[1].astype(mx.float32), packed[2].astype(mx.float32), **how)
        names = {mx.uint32: "U32", mx.uint8: "U8", mx.float16: "F16", mx.bfloat16: "BF16", mx.float32: "F32"}
        for part, tensor in zip(("weight", "scales", "biases"), packed):
            kind = names[tensor.dtype]
            plain = np.array(tensor.astype(mx.float32)) if kind == "BF16" else np.array(tensor)
            tensors[f"{name}.{part}"] = array(plain, kind)
        expected[name] = np.array(values)
        rules[name] = {k: v for k, v in how.items()}

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            dtype = {32: mx.float16, 64: mx.bfloat16, 128: mx.float32}[group]
            add(f"m.b{bits}g{group}", mx.random.normal((8, COLS)) * 0.05, dtype, bits=bits, group_size=group)
    add("m.fp4", mx.random.normal((8, COLS)) * 0.05, mx.bfloat16, bits=4, group_size=32, mode="mxfp4")
    add("m.stacked", mx.random.normal((3, 8, 64)) * 0.05, mx.bfloat16, bits=4, group_size=64)
    config = {"quantization": {"group_size": 64, "bits": 4, "mode": "affine", **rules}}
    save(root / "mlx", config, tensors, expected)


def mlx_model(source, folder):
    """The golden model qwen3_moe as MLX stores it: stacked experts, a router of eight bits, a packed embedding."""
    import mlx.core as mx

    weights = mx.load(str(source / "model.safetensors"))
    config = json.loads((source / "config.json").read_text())
    config["quantization"] = {"group_size": 32, "bits": 4, "mode": "affine"}
    stacks = {}
    for name in sorted(weights, key=lambda n: [int(p) if p.isdigit() else -1 for p in n.split(".")]):
        parts = name.split(".")
        if "experts" in parts:
            at = parts.index("experts")
            stacked = ".".join([*parts[:at], "switch_mlp", *parts[at + 2 :]])
            stacks.setdefault(stacked, []).append(weights[name])
    plain = {n: w for n, w in weights.items() if ".experts." not in n}
    plain.update({n: mx.stack(w) for n, w in stacks.items()})
    tensors = {}
    names = {mx.uint32: "U32", mx.bfloat16: "BF16"}

    def put(name, tensor):
        kind = names[tensor.dtype]
        tensors[name] = array(np.array(tensor.astype(mx.float32)) if kind == "BF16" else np.array(tensor), kind)

    for name, tensor in sorted(plain.items()):
        module = name[: -len(".weight")]
        if tensor.ndim < 2:
            put(name, tensor.astype(mx.bfloat16))
            continue
        how = {"group_size": 32, "bits": 4}
        if module.endswith("mlp.gate"):
            how["bits"] = 8
            config["quantization"][module] = {"group_size": 32, "bits": 8}
        for part, packed in zip(("weight", "scales", "biases"), mx.quantize(tensor.astype(mx.bfloat16), **how)):
            put(f"{module}.{part}", packed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)


def read_safetensors(path):
    """name -> f32 array, of a file whose tensors are BF16 or F32."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + at for at in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data[begin:end], np.float32)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def fp8_model(source, folder):
    """The golden model qwen3_moe as FP8 checkpoints are stored: linears in E4M3 with a scale for each 128 x 128."""
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                                     "activation_scheme": "dynamic"}
    values = e4m3(np.arange(256))
    values[[0x7F, 0xFF]] = np.inf
    order = np.argsort(values[:0x7F])
    tensors = {}
    for name, w in sorted(read_safetensors(source / "model.safetensors").items()):
        if not name.endswith("_proj.weight"):
            tensors[name] = array(w, "BF16")
            continue
        scales = np.zeros([-(-n // 128) for n in w.shape], np.float32)
        codes = np.zeros(w.shape, np.uint8)
        for i, j in np.ndindex(*scales.shape):
            block = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            scales[i, j] = np.abs(w[block]).max() / 448
            magnitude = np.abs(w[block]) / scales[i, j]
            nearest = np.abs(magnitude[..., None] - values[order]).argmin(-1)
            codes[block] = order[nearest] | np.where(w[block] < 0, 0x80, 0)
        tensors[name] = ("F8_E4M3", codes.shape, codes.tobytes())
        tensors[name + "_scale_inv"] = array(scales, "F32")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)


def gptq_order_model(source, folder):
    """The golden model qwen3_moe as GPTQ with desc_act stores it: 4 bits, groups of 32 columns that lie anywhere."""
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True,
                                     "checkpoint_format": "gptq_v2"}
    rng = np.random.default_rng(3)
    tensors = {}
    for name, w in sorted(read_safetensors(source / "model.safetensors").items()):
        if not name.endswith("_proj.weight"):
            tensors[name] = array(w, "BF16")
            continue
        groups = w.shape[1] // 32
        group_of = np.arange(w.shape[1]) // 32
        rng.shuffle(group_of)
        least = np.stack([w[:, group_of == g].min(1) for g in range(groups)])
        most = np.stack([w[:, group_of == g].max(1) for g in range(groups)])
        scales = (np.maximum(most - least, 1e-6) / 15).astype(np.float16)
        zeros = np.clip(np.rint(-least / scales), 0, 15).astype(np.int64)
        codes = np.clip(np.rint(w / scales.T[:, group_of]) + zeros.T[:, group_of], 0, 15).astype(np.int64)
        module = name[: -len(".weight")]
        tensors[f"{module}.qweight"] = array(pack_along(codes.T, 4, 0), "I32")
        tensors[f"{module}.qzeros"] = array(pack_along(zeros, 4, 1), "I32")
        tensors[f"{module}.scales"] = array(scales, "F16")
        tensors[f"{module}.g_idx"] = array(group_of, "I32")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mlx", action="store_true", help="the MLX folder, too (needs the mlx package)")
    args = parser.parse_args()
    rng = np.random.default_rng(11)
    gptq(args.folder, rng, 4, 128, "gptq", False)
    gptq(args.folder, rng, 4, 64, "gptq", True)
    gptq(args.folder, rng, 4, -1, "gptq_v2", False)
    gptq(args.folder, rng, 8, 128, "gptq", True)
    gptq(args.folder, rng, 8, 128, "gptq_v2", False)
    gptq(args.folder, rng, 3, 128, "gptq", True)
    gptq(args.folder, rng, 2, 32, "gptq", False)
    awq(args.folder, rng)
    for bits in (4, 8):
        for symmetric in (True, False):
            compressed(args.folder, rng, bits, symmetric, False)
    compressed(args.folder, rng, 4, True, True)
    fp8(args.folder, rng)
    rng = np.random.default_rng(2)
    gptq(args.folder, rng, 4, 64, "gptq", False, True)
    gptq(args.folder, rng, 8, 128, "gptq_v2", True, True)
    compressed(args.folder, rng, 4, False, False, True)
    fp8_model(args.folder.parent / "models/qwen3_moe", args.folder / "fp8_qwen3_moe")
    fp8_compressed(args.folder, np.random.default_rng(4))
    gptq_order_model(args.folder.parent / "models/qwen3_moe", args.folder / "gptq_order_qwen3_moe")
    if args.mlx:
        mlx(args.folder)
        mlx_model(args.folder.parent / "models/qwen3_moe", args.folder / "mlx_qwen3_moe")


if __name__ == "__main__":
    main()
