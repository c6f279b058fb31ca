#!/usr/bin/env python3
"""Writes the golden models: tiny random checkpoints of every model family with what transformers computes from them.

    python tools/make_goldens.py [--out tests/golden/models] [--only NAME ...] [--search N]

Each folder holds an ordinary Hugging Face checkpoint (config.json, generation_config.json, *.safetensors,
tokenizer.json, tokenizer_config.json) and its goldens, laid out as those of the bundled model:
  golden.json                for each prompt: prompt, ids (tokenizer.json with its post-processor), greedy_ids (prompt
                             and 12 tokens, recomputed from the start for each token), greedy_text, greedy_margin
                             (highest logit minus the second highest), router_gap (see below; MoE families)
  golden_logits.safetensors  logits.i [tokens, vocab] f32
computed with float32 arithmetic, eager attention, eager experts, TF32 off, on the CPU, from the stored weights. For
diffusion_gemma see golden_diffusion.py. Each folder is loaded again with from_pretrained and must give the same bits.

Weights. Linear layers are N(0, 1/K) for inputs of K values, so that a unit-variance input stays one; the down
projections are twice that. Norm weights are 1 + N(0, 1/16). Embeddings are N(0, 1) and the head N(0, 9/K), or
tied N(0, 1/4K) and the final norm 6 times larger: the logits then have a standard deviation near 3 and reach about 10.
Router rows are N(0, 9/K): router logits have a standard deviation near 3, so the chosen experts' weights are far from
equal. Biases are N(0, 1/4).
Random routers always come close to a tie somewhere. router_gap is the smallest difference between the router logits of
the last expert chosen and the first one left out, over all layers and rows of the prompt and its continuation. The seed
of each model is the one, of 0..N-1 (--search N), with the best smallest value of router_gap / (deviation of the router
logits) and greedy_margin / (deviation of the logits) over the prompts; continuations with special tokens, or with
fewer than 5 different ones, are out. So neither routes nor greedy tokens hang on the last bits of a sum.

models.json lists folders, families, layouts, seeds, sizes, gaps and the versions of the packages.
Needs torch, transformers, safetensors, tokenizers, numpy.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import safetensors
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import golden_diffusion
import golden_fp8
import golden_specs

PROMPTS = ("Hi, Bo", "The old miller sat.", "In 1906: ½ café, key 東")
GREEDY = 12
DISTINCT = 5  # different tokens that a continuation must have
LOGIT_STD = 3.0
ROUTER_STD = 3.0
# With tied embeddings of that size the residual stream would begin with the token's own row of the head, and every
# token predict itself. So the rows are this much smaller and the final norm's weights larger.
TIED_NORM = 6.0


def fill(model, spec, seed):
    """Sets every parameter of the model from `seed`, rounded to the dtype in which the checkpoint stores it."""
    random = np.random.default_rng(seed)
    tensors = dict(model.named_parameters())
    tensors.update((n, b) for n, b in model.named_buffers() if n.endswith("layer_scalar"))
    for name in sorted(tensors):
        tensor = tensors[name]
        draw = random.standard_normal(tuple(tensor.shape), dtype=np.float32)
        fan_in = tensor.shape[1 if spec.mxfp4 and tensor.dim() == 3 else -1]
        if name.endswith("layer_scalar"):
            value = 0.8 + 0.1 * draw
        elif name.endswith("per_expert_scale"):
            value = 1 + 0.15 * draw
        elif name.endswith("router.scale") or (tensor.dim() == 1 and "norm" in name):
            value = 1 + 0.25 * draw
            if spec.gemma and ("q_norm" in name or "k_norm" in name):
                value *= fan_in**-0.25  # attention scale 1.0: keeps the scores' deviation near one
            if spec.tied and name.endswith(("model.norm.weight", "decoder.norm.weight")):
                value *= TIED_NORM
        elif name.endswith("self_attn.sinks"):
            value = draw  # as large as the scores
        elif name.endswith("bias"):
            value = 0.5 * draw
        elif "embed_tokens" in name:
            value = draw * (LOGIT_STD * fan_in**-0.5 if spec.tied else 1.0)
            if spec.tied:
                value /= TIED_NORM
        elif name.endswith("lm_head.weight"):
            value = draw * (LOGIT_STD * fan_in**-0.5)
        elif name.endswith("router.proj.weight"):
            value = draw * ROUTER_STD  # its input is already divided by sqrt(hidden)
        elif name.endswith(("mlp.gate.weight", "mlp.router.weight")):
            value = draw * (ROUTER_STD * fan_in**-0.5)
        else:
            value = draw * ((2.0 if "down_proj" in name else 1.0) * fan_in**-0.5)
        stored = torch.from_numpy(np.ascontiguousarray(value)).to(spec.dtype).float()
        if spec.mxfp4 and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            # gpt-oss stores the experts' floats with the input first.
            stored = golden_specs.mxfp4_rounded(stored.transpose(1, 2)).transpose(1, 2)
        if spec.fp8:
            fused = name.endswith("gate_up_proj")
            linear = fused or name.endswith(("_proj", "_proj.weight"))
            stored = golden_fp8.rounded(stored, 2 if fused else 1) if linear else stored.to(torch.bfloat16).float()
        with torch.no_grad():
            tensor.copy_(stored)


class RouterWatch:
    """Collects the router logits of every forward pass while it lives."""

    def __init__(self, model, top_k):
        self.top_k, self.gap, self.logits = top_k, float("inf"), []
        self.hooks = [
            m.register_forward_hook(self._hook)
            for n, m in model.named_modules()
            if n.endswith(("mlp.gate", "mlp.router", "router.proj")) and hasattr(m, "weight")
        ]

    def _hook(self, module, inputs, _):
        logits = inputs[0].reshape(-1, module.weight.shape[1]) @ module.weight.T
        if getattr(module, "bias", None) is not None:
            logits = logits + module.bias
        ordered = logits.sort(-1, descending=True).values
        self.gap = min(self.gap, float((ordered[:, self.top_k - 1] - ordered[:, self.top_k]).min()))
        self.logits.append(logits)

    def take(self):
        """The smallest gap since the last take, or None for a dense model; and the deviation of the logits."""
        gap, std = (self.gap, float(torch.cat(self.logits).std())) if self.logits else (None, None)
        self.gap, self.logits = float("inf"), []
        return gap, std

    def close(self):
        for hook in self.hooks:
            hook.remove()


def logits_of(model, ids):
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def goldens(model, tiny, watch, best=0.0):
    """(entries, logits, score); None as soon as the score cannot reach `best`."""
    special = {tiny.id(n) for n in tiny.control}
    entries, tensors, score = [], {}, float("inf")
    watch.take()
    for i, prompt in enumerate(PROMPTS):
        ids = tiny.tokenizer.encode(prompt).ids
        assert 5 <= len(ids) <= 40, (prompt, len(ids))
        tokens, margins = list(ids), []
        logits = tensors[f"logits.{i}"] = logits_of(model, ids)
        std = float(logits.std())
        for step in range(GREEDY):
            if step:
                logits = logits_of(model, tokens)
            top = logits[-1].topk(2)
            margins.append(float(top.values[0] - top.values[1]))
            tokens.append(int(top.indices[0]))
            score = min(score, margins[-1] / std)
            if tokens[-1] in special or score <= best:
                return None
        if len(set(tokens[-GREEDY:])) < DISTINCT:
            return None
        gap, router_std = watch.take()
        if gap is not None:
            score = min(score, gap / router_std)
            if score <= best:
                return None
        entry = {
            "prompt": prompt,
            "ids": ids,
            "greedy_ids": tokens,
            "greedy_text": tiny.tokenizer.decode(tokens),
            "greedy_margin": [round(m, 5) for m in margins],
        }
        if gap is not None:
            entry["router_gap"] = round(gap, 5)
        entries.append(entry)
    return entries, tensors, score


def build(spec):
    """The model in float32, its parameters not yet set."""
    torch.manual_seed(0)
    model = spec.model_class._from_config(spec.config(), attn_implementation="eager", dtype=torch.float32)
    model.set_experts_implementation("eager")
    return model.eval()


def saved(model, spec):
    """What save_pretrained writes: (state with tied tensors once, in the stored dtype; config.json)."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        state = load_file(os.path.join(folder, "model.safetensors"))
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
    return {n: t.to(spec.dtype).contiguous() for n, t in state.items()}, config


def write_checkpoint(folder, model, spec, tiny, layout):
    """config, weights and tokenizer; layout is a key of spec.layouts. Returns the number of parameters."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    state, config = saved(model, spec)
    state = spec.layouts[layout](state)
    meta = {"format": "pt"}
    if spec.shards > 1:
        golden_specs.save_sharded(folder, state, spec.shards, meta)
    else:
        save_file(state, os.path.join(folder, "model.safetensors"), meta)
    write_json(os.path.join(folder, "config.json"), spec.config_json(config, layout))
    write_json(
        os.path.join(folder, "generation_config.json"),
        {"bos_token_id": tiny.id(tiny.bos), "eos_token_id": tiny.id(tiny.eos), **spec.generation},
    )
    tiny.tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    write_json(os.path.join(folder, "tokenizer_config.json"), tiny.config())
    return sum(t.numel() for t in state.values())


def write_json(path, data):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1, ensure_ascii=False)
        f.write("\n")


def reload(folder, spec):
    return spec.model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def check(folder, spec, entries, tensors):
    """The folder, read by transformers' own loader, must give the same bits."""
    model = reload(folder, spec)
    for i, entry in enumerate(entries):
        again = logits_of(model, entry["ids"])
        if not torch.equal(again, tensors[f"logits.{i}"]):
            raise SystemExit(
                f"{folder}: prompt {i} differs after loading by {(again - tensors[f'logits.{i}']).abs().max()}"
            )


def check_mxfp4(folder, model):
    """transformers' decoder of the blocks gives the model's experts. (Its loader of such folders needs a GPU.)"""
    state, parameters = load_file(os.path.join(folder, "model.safetensors")), dict(model.named_parameters())
    blocks = [n for n in state if n.endswith("_blocks")]
    for name in blocks:
        module = name.removesuffix("_blocks")
        decoded = convert_moe_packed_tensors(state[name], state[module + "_scales"])
        if not torch.equal(decoded.float(), parameters[module]):
            raise SystemExit(f"{folder}: {name} is not what the model has")
    assert blocks, folder


def make(spec, out, search):
    """Writes the folders of one spec; returns its lines of models.json."""
    tiny = spec.tokenizer()
    assert tiny.vocab_size == spec.vocab, (spec.name, tiny.vocab_size)
    model = build(spec)
    lines = []
    if spec.diffusion:
        seed = spec.seed
        fill(model, spec, seed)
        entries, tensors, extra = golden_diffusion.goldens(model, tiny, PROMPTS)
    else:
        watch = RouterWatch(model, spec.top_k)
        found = None
        for seed_ in range(search) if search else [spec.seed]:
            fill(model, spec, seed_)
            result = goldens(model, tiny, watch, found[2] if found else 0.0)
            if result:
                found, seed = result, seed_
        watch.close()
        if not found:
            raise SystemExit(f"{spec.name}: no seed with acceptable continuations")
        entries, tensors, score = found
        fill(model, spec, seed)
        everything = torch.cat([t.flatten() for t in tensors.values()])
        extra = {
            "score": round(score, 4),
            "logit_std": round(float(everything.std()), 3),
            "logit_max": round(float(everything.abs().max()), 2),
            "min_greedy_margin": min(min(e["greedy_margin"]) for e in entries),
        }
        if "router_gap" in entries[0]:
            extra["min_router_gap"] = min(e["router_gap"] for e in entries)
    for layout in spec.layouts:
        name = spec.name + layout
        folder = os.path.join(out, name)
        parameters = write_checkpoint(folder, model, spec, tiny, layout)
        if spec.diffusion:
            golden_diffusion.check(reload(folder, spec), entries, tensors, folder)
        elif layout == "_mxfp4":
            check_mxfp4(folder, model)
        elif layout == "_fp8":
            golden_fp8.check(load_file(os.path.join(folder, "model.safetensors")), saved(model, spec)[0])
        else:
            check(folder, spec, entries, tensors)
        write_json(os.path.join(folder, "golden.json"), entries)
        save_file(tensors, os.path.join(folder, "golden_logits.safetensors"))
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        lines.append(
            {
                "name": name,
                "family": spec.family,
                "seed": seed,
                "dtype": str(spec.dtype).removeprefix("torch."),
                "parameters": parameters,
                "bytes": size,
                **extra,
                "note": spec.note(layout),
            }
        )
        print(json.dumps(lines[-1]), flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="tests/golden/models")
    parser.add_argument("--only", nargs="*", help="names of specs; models.json is then left alone")
    parser.add_argument("--search", type=int, default=0, help="try this many seeds and say which is best")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)  # sums in one order
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    versions = {
        "python": sys.version.split()[0],
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": np.__version__,
    }
    print(json.dumps(versions))
    lines = []
    for spec in golden_specs.SPECS:
        if not args.only or spec.name in args.only:
            lines += make(spec, args.out, args.search)
    if not args.only:
        write_json(
            os.path.join(args.out, "models.json"),
            {"made_by": "tools/make_goldens.py", "versions": versions, "models": lines},
        )
    print(f"{len(lines)} folders, {sum(line['bytes'] for line in lines)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
