#!/usr/bin/env python3
"""Writes the golden models as GGUF files with the PyPI package `gguf`, so that our reader meets somebody else's writer.

    python tools/make_golden_gguf.py [--models tests/golden/models] [--out tests/golden/gguf] [--only NAME ...]

Reads the folders that make_goldens.py wrote (config.json, *.safetensors, tokenizer.json; nothing of transformers) and
writes NAME-f32.gguf, or NAME-bf16.gguf where F32 would exceed 400 KB; norms, biases, routers and scales are always F32.
Every value is exact, so the goldens of the folder hold for the file. Tensor names come from the package's own table;
DiffusionGemma, which the package does not know, takes Gemma 4's names and adds its own. Llama's and Mixtral's q and k
rows are permuted to adjacent RoPE pairs as that architecture's files have them. Llama 3's RoPE scaling is stored as
rope_freqs.weight (divisors), Gemma's partial rotary likewise.
GGUF has no key for unnormalised top-k weights of Qwen3-MoE, so qwen3_moe_odd has no file here.

Needs gguf, torch (to read bf16), safetensors, numpy.
"""

import argparse
import json
import math
import os
import sys

import gguf
import numpy as np
import torch
from safetensors import safe_open

LIMIT = 400_000
NAMES = (
    "qwen3_moe",
    "qwen3",
    "qwen3_yarn",
    "qwen2",
    "llama",
    "llama_rope3",
    "llama_tied",
    "mixtral",
    "gpt_oss",
    "gemma4",
    "gemma4_deep",
    "diffusion_gemma",
)
ARCH = {
    "qwen3_moe": "qwen3moe",
    "qwen3": "qwen3",
    "qwen2": "qwen2",
    "llama": "llama",
    "mixtral": "llama",
    "gpt_oss": "gpt-oss",
    "gemma4_text": "gemma4",
    "diffusion_gemma_text": "diffusion-gemma",
}
DIFFUSION_NAMES = {
    "pre_norm": "self_cond_pre_norm",
    "gate_proj": "self_cond_gate",
    "up_proj": "self_cond_up",
    "down_proj": "self_cond_down",
}


def load(folder):
    """(config, {name: float32 array}) of a checkpoint folder."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    state = {}
    for file in sorted(f for f in os.listdir(folder) if f.startswith("model") and f.endswith(".safetensors")):
        with safe_open(os.path.join(folder, file), framework="pt") as f:
            state.update((n, f.get_tensor(n).to(torch.float32).numpy()) for n in f.keys())
    return config, state


def rope_of(config):
    """(theta, scaling dictionary or None) from either style of config.json."""
    rope = config.get("rope_parameters") or {**(config.get("rope_scaling") or {}), "rope_theta": config["rope_theta"]}
    return rope["rope_theta"], rope if rope.get("rope_type", "default") != "default" else None


def llama3_divisors(head_dim, theta, scaling):
    """Divisors of the RoPE frequencies [head_dim / 2]: 1 for short waves, `factor` for long ones, a blend between."""
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    divisors = []
    for i in range(head_dim // 2):
        wave = 2 * math.pi * theta ** (2 * i / head_dim)
        if wave < context / high:
            divisors.append(1.0)
        elif wave > context / low:
            divisors.append(factor)
        else:
            blend = (context / wave - low) / (high - low)
            divisors.append(1 / ((1 - blend) / factor + blend))
    return np.array(divisors, np.float32)


def adjacent_pairs(rows, heads):
    """Rows of a q or k projection (or bias): from half-split RoPE pairs to adjacent ones, head by head."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def stack_experts(state):
    """One tensor per expert -> [experts, out, in] under the name `...experts.KIND.weight`."""
    out, groups = {}, {}
    for name, tensor in state.items():
        parts = name.split(".experts.")
        if len(parts) == 2 and parts[1][0].isdigit():
            expert, kind = parts[1].split(".", 1)
            groups.setdefault(f"{parts[0]}.experts.{kind}", {})[int(expert)] = tensor
        else:
            out[name] = tensor
    out.update((name, np.stack([g[e] for e in sorted(g)])) for name, g in groups.items())
    return out


def split_gpt_oss(state):
    """Experts of gpt-oss: gate and up apart, [experts, out, in]; sinks and biases under names that the table knows."""
    out = {}
    for name, tensor in state.items():
        block = name.rsplit(".", 1)[0]
        if name.endswith("experts.gate_up_proj"):
            turned = tensor.transpose(0, 2, 1)
            out[block + ".gate_proj.weight"], out[block + ".up_proj.weight"] = turned[:, 0::2], turned[:, 1::2]
        elif name.endswith("experts.gate_up_proj_bias"):
            out[block + ".gate_proj.bias"], out[block + ".up_proj.bias"] = tensor[:, 0::2], tensor[:, 1::2]
        elif name.endswith("experts.down_proj"):
            out[block + ".down_proj.weight"] = tensor.transpose(0, 2, 1)
        elif name.endswith("experts.down_proj_bias"):
            out[block + ".down_proj.bias"] = tensor
        else:
            out[name] = tensor
    return out


def tensors_of(config, state, arch):
    """{GGUF name: array} of everything that text needs."""
    blocks = config["num_hidden_layers"]
    known = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known["gemma4" if arch == "diffusion-gemma" else arch], blocks)
    out = {}
    if arch == "gpt-oss":
        state = split_gpt_oss(state)
    for name, tensor in stack_experts(state).items():
        if "vision" in name:
            continue
        if name.startswith("model.encoder."):  # shared with the decoder but for the layer scalars
            assert name.endswith("layer_scalar"), name
            out[f"blk.{name.split('.')[4]}.enc_layer_output_scale.weight"] = tensor
            continue
        if ".self_conditioning." in name:
            out[DIFFUSION_NAMES[name.split(".")[-2]] + ".weight"] = tensor
            continue
        name = name.replace("model.decoder.", "model.").replace("model.language_model.", "model.")
        layer = name.split(".")[2] if ".layers." in name else None
        if name.endswith(".router.scale"):
            out[f"blk.{layer}.ffn_gate_inp.scale"] = tensor
        elif name.endswith(".router.per_expert_scale"):
            out[f"blk.{layer}.ffn_down_exps.scale"] = tensor
        else:
            if not name.endswith((".weight", ".bias")):
                name += ".weight"
            mapped = table.get_name(name, try_suffixes=(".weight", ".bias"))
            if mapped is None:
                raise SystemExit(f"no GGUF name for {name}")
            if arch == "llama" and (".attn_q." in mapped or ".attn_k." in mapped):
                heads = config["num_attention_heads" if ".attn_q." in mapped else "num_key_value_heads"]
                tensor = adjacent_pairs(tensor, heads)
            out[mapped] = tensor
    return out


def add_tokenizer(writer, folder, arch):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        model = json.load(f)
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as f:
        config = json.load(f)
    vocab = dict(model["model"]["vocab"])
    special = {t["content"]: t["id"] for t in model["added_tokens"]}
    vocab.update(special)
    tokens = sorted(vocab, key=vocab.get)
    assert [vocab[t] for t in tokens] == list(range(len(tokens)))
    pieces = model["model"]["byte_fallback"]
    types = []
    for token in tokens:
        if token in special:
            types.append(gguf.TokenType.UNKNOWN if token == "<unk>" else gguf.TokenType.CONTROL)
        elif pieces and len(token) == 6 and token.startswith("<0x"):
            types.append(gguf.TokenType.BYTE)
        else:
            types.append(gguf.TokenType.NORMAL)
    merges = [" ".join(m) for m in model["model"]["merges"]]
    if not pieces:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre({"llama": "llama-bpe", "gpt-oss": "gpt-4o"}.get(arch, "qwen2"))
        writer.add_token_merges(merges)
    else:
        writer.add_tokenizer_model("gemma4" if "gemma" in arch else "llama")
        # SentencePiece: the higher score is merged first; merged pieces stand before single characters, in order.
        first = types.index(gguf.TokenType.NORMAL)
        writer.add_token_scores([-float(max(0, i - first)) for i in range(len(tokens))])
        writer.add_add_space_prefix("gemma" not in arch)
        if "gemma" in arch:
            writer.add_token_merges(merges)
        writer.add_unk_token_id(vocab["<unk>"])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        if config[key] is not None:
            add(vocab[config[key]])
    writer.add_add_bos_token(config["add_bos_token"])
    if "<mask>" in vocab:
        writer.add_mask_token_id(vocab["<mask>"])


def add_yarn(writer, scaling):
    """attn_factor is what llama.cpp multiplies on top of YaRN's own 0.1 ln(factor) + 1. Its defaults are left out."""
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(scaling["factor"])
    writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    own = 0.1 * math.log(scaling["factor"]) + 1
    if scaling.get("attention_factor", own) != own:
        writer.add_rope_scaling_attn_factors(scaling["attention_factor"] / own)
    if (scaling["beta_fast"], scaling["beta_slow"]) != (32, 1):
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])


def add_config(writer, config, arch):
    """The keys that llama.cpp's converter writes for the family."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if "gemma" in arch:
        add_gemma(writer, config)
        return
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_freq_base(rope_of(config)[0])
    scaling = rope_of(config)[1]
    if scaling and scaling["rope_type"] == "yarn":
        add_yarn(writer, scaling)
    if arch == "llama":
        writer.add_rope_dimension_count(head_dim)
    if "num_experts_per_tok" in config:
        writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if "moe_intermediate_size" in config or arch == "gpt-oss":
            writer.add_expert_feed_forward_length(config.get("moe_intermediate_size", config["intermediate_size"]))
    if arch == "gpt-oss":
        writer.add_sliding_window(config["sliding_window"])


def full_heads(config):
    """KV heads and head_dim of Gemma's full layers: keys of their own, or an entry of the table that is newer."""
    if "per_layer_config" in config:
        full = config["per_layer_config"][str(config["layer_types"].index("full_attention"))]
    else:
        full = {"num_key_value_heads": config["num_global_key_value_heads"], "head_dim": config["global_head_dim"]}
    return full.get("num_key_value_heads") or config["num_key_value_heads"], full["head_dim"]


def add_gemma(writer, config):
    sliding = [t == "sliding_attention" for t in config["layer_types"]]
    full_kv, full_dim = full_heads(config)
    writer.add_head_count_kv([config["num_key_value_heads"] if s else full_kv for s in sliding])
    writer.add_key_length(full_dim)
    writer.add_value_length(full_dim)
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(sliding)
    writer.add_shared_kv_layers(0)
    writer.add_embedding_length_per_layer_input(0)
    writer.add_rope_dimension_count(full_dim)
    writer.add_rope_dimension_count_swa(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("enable_moe_block", True):
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def rope_divisors(config, arch):
    """rope_freqs.weight, or None where the frequencies are plain."""
    if "gemma" in arch:
        pairs = full_heads(config)[1] // 2
        turning = int(pairs * config["rope_parameters"]["full_attention"]["partial_rotary_factor"])
        return np.array([1.0] * turning + [1e30] * (pairs - turning), np.float32)
    theta, scaling = rope_of(config)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return llama3_divisors(head_dim, theta, scaling) if scaling and scaling["rope_type"] == "llama3" else None


def stays_f32(name, tensor):
    return tensor.ndim == 1 or ".ffn_gate_inp." in name or name.endswith(".bias")


def convert(folder, out, name):
    config, state = load(folder)
    canvas = config.get("canvas_length")
    config = config.get("text_config", config)
    arch = ARCH[config["model_type"]]
    tensors = tensors_of(config, state, arch)
    divisors = rope_divisors(config, arch)
    if divisors is not None:
        tensors["rope_freqs.weight"] = divisors
    wide = sum(t.nbytes for t in tensors.values()) + 25_000 > LIMIT
    path = os.path.join(out, f"{name}-{'bf16' if wide else 'f32'}.gguf")
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if wide else gguf.LlamaFileType.ALL_F32)
    add_config(writer, config, arch)
    if canvas:
        writer.add_uint32("diffusion.canvas_length", canvas)
    add_tokenizer(writer, folder, arch)
    for tensor_name, tensor in tensors.items():
        tensor = np.ascontiguousarray(tensor, dtype=np.float32)
        if wide and not stays_f32(tensor_name, tensor):
            packed = gguf.quants.quantize(tensor, gguf.GGMLQuantizationType.BF16)
            assert np.array_equal(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.BF16), tensor), tensor_name
            writer.add_tensor(tensor_name, packed, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(tensor_name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    size = os.path.getsize(path)
    print(f"{path}: {arch}, {len(tensors)} tensors, {size} bytes")
    assert size < LIMIT, path
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="tests/golden/models")
    parser.add_argument("--out", default="tests/golden/gguf")
    parser.add_argument("--only", nargs="*", default=NAMES)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    total = sum(convert(os.path.join(args.models, n), args.out, n) for n in args.only)
    print(f"{len(args.only)} files, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
