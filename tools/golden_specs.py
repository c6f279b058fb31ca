"""What the golden models are: family, sizes, dtype, tokenizer, layouts of the experts, seed (see make_goldens.py)."""

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
import transformers as hf
from safetensors.torch import save_file

import golden_fp8
import golden_tokenizers


def as_saved(state):
    """The layout save_pretrained writes: one tensor per expert for the families that were published so."""
    return state


def fused(state):
    """The layout of the classes themselves: experts stacked, gate rows then up rows, no `.weight`.

    Qwen3-MoE: mlp.experts.gate_up_proj [E, 2*inter, hidden], mlp.experts.down_proj [E, hidden, inter].
    Mixtral the same, its block named mlp instead of block_sparse_moe.
    """
    out, experts = {}, {}
    for name, tensor in state.items():
        name = name.replace(".block_sparse_moe.", ".mlp.")
        match = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight", name)
        if match:
            kind = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}.get(match[3], match[3])
            experts.setdefault(match[1], {}).setdefault(kind, {})[int(match[2])] = tensor
        else:
            out[name] = tensor
    for prefix, kinds in experts.items():
        gate, up, down = (
            torch.stack([kinds[k][e] for e in sorted(kinds[k])]) for k in ("gate_proj", "up_proj", "down_proj")
        )
        out[prefix + ".gate_up_proj"] = torch.cat((gate, up), 1).contiguous()
        out[prefix + ".down_proj"] = down
    return out


def mxfp4_codes(weight):
    """(nibbles, exponents) of [..., K]: 32 values along K share the scale 2^(exponent - 127), each is one of 16."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    blocks = weight.float().reshape(*weight.shape[:-1], -1, 32)
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
    scaled = blocks / torch.exp2(exponents)[..., None]
    nearest = (scaled.abs()[..., None] - values).abs().argmin(-1)
    return (nearest + 8 * (scaled < 0)).to(torch.uint8), (exponents + 127).to(torch.uint8)


def mxfp4_rounded(weight):
    """The nearest values that MXFP4 can hold, along the last dimension."""
    codes, exponents = mxfp4_codes(weight)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    scales = torch.exp2(exponents.float() - 127)[..., None]
    return (values[codes.long()] * scales).reshape(weight.shape)


def mxfp4(state):
    """The layout in which OpenAI published gpt-oss: NAME [experts, K, rows] as NAME_blocks [experts, rows, K / 32, 16]
    with two values a byte, the first one low, and NAME_scales [experts, rows, K / 32]."""
    out = {}
    for name, tensor in state.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = tensor
            continue
        codes, exponents = mxfp4_codes(tensor.transpose(1, 2))
        out[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).contiguous()
        out[name + "_scales"] = exponents.contiguous()
    return out


def save_sharded(folder, state, shards, meta):
    """model-0000i-of-0000n.safetensors and the index; the tensors are dealt out in turn."""
    names = sorted(state)
    table = {n: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, n in enumerate(names)}
    for file in sorted(set(table.values())):
        save_file({n: state[n] for n in names if table[n] == file}, os.path.join(folder, file), meta)
    total = sum(t.numel() * t.element_size() for t in state.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": table}, f, indent=1)
        f.write("\n")


def old_style(config):
    """config.json as transformers 4 wrote it: rope_theta and rope_scaling at the top, torch_dtype, num_experts."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts", config.get("num_experts"))
    config.pop("transformers_version", None)
    return config


@dataclass
class Spec:
    """One golden model. sizes are the arguments of config_class; layouts maps a suffix of the name to a rewriter."""

    name: str
    family: str
    model_class: Any
    make_config: Callable
    tokenizer: Callable
    seed: int
    tied: bool
    text: str
    vocab: int = 288
    dtype: torch.dtype = torch.bfloat16
    top_k: int = 0
    shards: int = 1
    gemma: bool = False
    mxfp4: bool = False  # the experts have values that MXFP4 can hold
    fp8: bool = False  # the linear layers have values that FP8 blocks can hold
    diffusion: bool = False
    old_config: tuple = ("",)  # layouts whose config.json is in the old style
    layouts: dict = field(default_factory=lambda: {"": as_saved})
    generation: dict = field(default_factory=dict)

    def config(self):
        return self.make_config()

    def config_json(self, config, layout):
        """config: what save_pretrained wrote."""
        config["dtype"] = str(self.dtype).removeprefix("torch.")
        if self.gemma and "text_config" in config:
            text = config["text_config"]
            text["dtype"] = config["dtype"]
            # The released checkpoints say it with two keys; transformers 5.24 saves the table it makes of them.
            full = text.pop("per_layer_config")[str(text["layer_types"].index("full_attention"))]
            text["global_head_dim"], text["num_global_key_value_heads"] = (
                full["head_dim"],
                full.get("num_key_value_heads"),
            )
            text["final_logit_softcapping"] = 30.0
        if layout == "_mxfp4":
            kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
            config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
        if layout == "_fp8":
            config["dtype"] = "bfloat16"
            config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                             "weight_block_size": [golden_fp8.BLOCK, golden_fp8.BLOCK],
                                             "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}
        return old_style(config) if layout in self.old_config else config

    def note(self, layout):
        experts = {"_mxfp4": "; experts as MXFP4", "_fp8": "; FP8 blocks of 128 x 128", "_fused": "; experts fused", "": "; one tensor per expert" if "_fused" in self.layouts else ""}[layout]
        return (
            self.text + experts + ("; config.json in the style of transformers 4" if layout in self.old_config else "")
        )


COMMON = dict(max_position_embeddings=512, hidden_size=64, num_hidden_layers=2, vocab_size=288)


def rope(theta, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def qwen3_moe():
    return hf.Qwen3MoeConfig(
        **{**COMMON, **rope(1e6)},
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=24,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_experts=5,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def qwen3_moe_blocks():
    sizes = {**COMMON, "hidden_size": 160, "num_hidden_layers": 1}
    return hf.Qwen3MoeConfig(
        **sizes,
        **rope(1e6),
        num_attention_heads=5,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=160,
        moe_intermediate_size=192,
        num_experts=3,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def qwen3_moe_odd():
    sizes = {**COMMON, "hidden_size": 72}
    return hf.Qwen3MoeConfig(
        **sizes,
        **rope(1e4),
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=20,
        intermediate_size=72,
        moe_intermediate_size=24,
        num_experts=5,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def qwen3():
    return hf.Qwen3Config(
        **COMMON,
        **rope(1e6),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=20,
        intermediate_size=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def qwen3_yarn():
    scaling = rope(
        1e4,
        rope_type="yarn",
        factor=8.0,
        original_max_position_embeddings=64,
        attention_factor=1.25,
        beta_fast=8.0,
        beta_slow=0.5,
    )
    return hf.Qwen3Config(
        **COMMON,
        **scaling,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=20,
        intermediate_size=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def qwen2():
    return hf.Qwen2Config(
        **COMMON,
        **rope(1e6),
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=80,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=287,
    )


def llama():
    return hf.LlamaConfig(
        **COMMON,
        **rope(1e4),
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=80,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=285,
        eos_token_id=286,
    )


def llama_rope3():
    scaling = rope(
        1e4,
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    return hf.LlamaConfig(
        **COMMON,
        **scaling,
        num_attention_heads=4,
        num_key_value_heads=1,
        intermediate_size=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=285,
        eos_token_id=286,
    )


def llama_tied():
    return hf.LlamaConfig(
        **{**COMMON, "vocab_size": 320},
        **rope(1e4),
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=32,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )


def mixtral():
    return hf.MixtralConfig(
        **{**COMMON, "vocab_size": 320},
        **rope(1e6),
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=24,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=None,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )


def gpt_oss():
    scaling = rope(
        1e4,
        rope_type="yarn",
        factor=8.0,
        original_max_position_embeddings=64,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=False,
    )
    return hf.GptOssConfig(
        **{**COMMON, "num_hidden_layers": 3},
        **scaling,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=32,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=282,
        pad_token_id=281,
    )


GEMMA = dict(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=16,
    global_head_dim=32,
    num_global_key_value_heads=1,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    sliding_window=8,
    max_position_embeddings=512,
    num_experts=4,
    top_k_experts=2,
    moe_intermediate_size=16,
    final_logit_softcapping=30.0,
    tie_word_embeddings=True,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=2,
)


def gemma4():
    text = dict(
        **GEMMA,
        enable_moe_block=True,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=320,
    )
    return hf.Gemma4Config(text_config=text, vision_config=None, audio_config=None)


def gemma4_deep():
    """Text alone: no text_config, no prefix, the heads of full layers in the table that transformers 5.24 saves."""
    return hf.Gemma4TextConfig(
        **{
            **GEMMA,
            "hidden_size": 48,
            "intermediate_size": 40,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "head_dim": 12,
            "global_head_dim": 20,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 5,
            "num_experts": 9,
            "top_k_experts": 3,
        },
        enable_moe_block=True,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=320,
    )


def gemma4_dense():
    text = {k: v for k, v in GEMMA.items() if k not in ("num_experts", "top_k_experts", "moe_intermediate_size")}
    text = dict(
        **{**text, "num_global_key_value_heads": None},
        enable_moe_block=False,
        attention_k_eq_v=False,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=320,
    )
    return hf.Gemma4Config(text_config=text, vision_config=None, audio_config=None)


def diffusion_gemma():
    text = {k: v for k, v in GEMMA.items() if k != "final_logit_softcapping"}
    vision = dict(
        model_type="gemma4_vision",
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        position_embedding_size=4,
        patch_size=2,
    )
    return hf.DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=12)


BOTH = {"": as_saved, "_fused": fused}
# fmt: off
SPECS = [
    Spec("qwen3_moe", "qwen3_moe", hf.Qwen3MoeForCausalLM, qwen3_moe, golden_tokenizers.qwen2, 84, True,
         "5 experts top-2, weights renormalised, tied", top_k=2, layouts=BOTH),
    Spec("qwen3_moe_odd", "qwen3_moe", hf.Qwen3MoeForCausalLM, qwen3_moe_odd, golden_tokenizers.qwen2, 48, True,
         "5 experts top-3, weights not renormalised, tied, K = 72, 60, 24, head_dim 20", top_k=3, old_config=()),
    Spec("qwen3_moe_blocks", "qwen3_moe", hf.Qwen3MoeForCausalLM, qwen3_moe_blocks, golden_tokenizers.qwen2, 10, True,
         "3 experts top-2, one layer, sizes of 160, 192 and 32, no multiples of 128", dtype=torch.float32, top_k=2, fp8=True,
         layouts={"_fp8": golden_fp8.blocks}, old_config=()),
    Spec("qwen3", "qwen3", hf.Qwen3ForCausalLM, qwen3, golden_tokenizers.qwen2, 280, True,
         "dense, head_dim 20 so that q is wider than hidden, tied", old_config=()),
    Spec("qwen3_yarn", "qwen3", hf.Qwen3ForCausalLM, qwen3_yarn, golden_tokenizers.qwen2, 21, True,
         "dense, one KV head, rope scaling yarn with a factor of its own for queries and keys and other betas, tied"),
    Spec("qwen2", "qwen2", hf.Qwen2ForCausalLM, qwen2, golden_tokenizers.qwen2, 192, True, "dense, q/k/v biases, tied",
         dtype=torch.float16),
    Spec("llama", "llama", hf.LlamaForCausalLM, llama, golden_tokenizers.llama3, 222, False,
         "dense, grouped heads, untied",
         old_config=()),
    Spec("llama_rope3", "llama", hf.LlamaForCausalLM, llama_rope3, golden_tokenizers.llama3, 308, True,
         "dense, one KV head, rope scaling llama3, tied"),
    Spec("llama_tied", "llama", hf.LlamaForCausalLM, llama_tied, golden_tokenizers.llama2, 223, True,
         "dense, as many KV as query heads, heads narrower than hidden, tied, two shards with an index", vocab=320,
         dtype=torch.float32, shards=2, old_config=()),
    Spec("mixtral", "mixtral", hf.MixtralForCausalLM, mixtral, golden_tokenizers.llama2, 363, False,
         "4 experts top-2 renormalised, untied", vocab=320, top_k=2, layouts=BOTH),
    Spec("gpt_oss", "gpt_oss", hf.GptOssForCausalLM, gpt_oss, golden_tokenizers.gpt_oss, 16, False,
         "windows of 8 on every other layer, sinks, biases, rope scaling yarn without truncation, 5 experts top-2", top_k=2,
         mxfp4=True, layouts={"": as_saved, "_mxfp4": mxfp4}, old_config=("_mxfp4",)),
    Spec("gemma4", "gemma4", hf.Gemma4ForConditionalGeneration, gemma4, golden_tokenizers.gemma4, 291, True,
         "text only; 2 sliding layers (window 8), a full one without v_proj, MLP beside 4 experts top-2, softcap 30",
         vocab=320, top_k=2, gemma=True, old_config=()),
    Spec("gemma4_deep", "gemma4", hf.Gemma4ForCausalLM, gemma4_deep, golden_tokenizers.gemma4, 191, True,
         "text only; sliding layers (window 5) and full ones in turn, MLP beside 9 experts top-3, softcap 30", vocab=320,
         top_k=3, gemma=True, old_config=()),
    Spec("gemma4_dense", "gemma4", hf.Gemma4ForConditionalGeneration, gemma4_dense, golden_tokenizers.gemma4, 126, True,
         "dense, 2 sliding layers (window 8) and a full one with its own v_proj, softcap 30", vocab=320, gemma=True,
         old_config=()),
    Spec("diffusion_gemma", "diffusion_gemma", hf.DiffusionGemmaForBlockDiffusion, diffusion_gemma,
         golden_tokenizers.gemma4, 0, True, "as gemma4, canvas of 12, with a vision tower that text does not use",
         vocab=320, top_k=2, gemma=True, diffusion=True, old_config=()),
]
# fmt: on
