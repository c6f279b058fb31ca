#!/usr/bin/env python3
"""How far do int8 activations move a model's logits from Hugging Face's float32 ones?

Emulates a Qwen3-MoE forward pass in float64 with the checkpoint's own (float) weights and, at the input of every
chosen linear layer, the activation quantisation of the canonical numerics (rule 2): blocks of B values along K,
d = amax / 127, q = rint(x * 127 / amax), value d * q. The float64 pass without quantisation agrees with the golden
logits to about 1e-6, so what a variant adds on top is the error of its quantisation alone, not of summation order.

Sites, the names used in the tables:
  qkv      the normed row that enters the q, k and v projections
  o        the attention output that enters the o projection
  gate_up  the normed row that enters the experts' gate and up projections
  down     h = silu(gate) * up that enters the experts' down projection
  head     the normed row that enters the output head
The router sees the unquantised row: its weights are float, so rule 2 does not apply to it.

Reports, for each prompt, ||logits - golden|| / ||golden|| (over all rows and the whole vocabulary), the largest
absolute difference of a logit, the number of rows whose arg max differs from the golden's ("flips"), and the number of
(row, layer) pairs that pick a different set of experts ("rerouted"); then the share of each site and each layer,
quantised alone; then variants (block length, KV in f16, more bits, the routes of the float pass imposed). At the end
the golden greedy continuation is fed to the quantised model: the first step whose arg max differs, its margin in the
golden and the largest logit error measured on that prompt.

    python tools/libris_activation_error.py [--model DIR] [--golden DIR] [--csv FILE]

Needs numpy and safetensors and torch (only to read bf16).
"""

import argparse
import csv
import json
import os
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

SITES = ("qkv", "o", "gate_up", "down", "head")


def quantise(x, block, levels=127, scale_type=None):
    """Rule 2 on the last axis of x [..., K] (any K: a short last block is its own block); returns d * q in float64.

    block 0 means one block per row. levels is the largest |q| (127 for int8). scale_type rounds d (np.float16, ...).
    The quantiser itself works in float32 as the engine does: x, amax and 127/amax are float32.
    """
    x32 = x.astype(np.float32)
    k = x.shape[-1]
    block = block or k
    out = np.empty(x.shape, np.float64)
    for start in range(0, k, block):
        part = x32[..., start : start + block]
        amax = np.abs(part).max(axis=-1, keepdims=True)
        inverse = np.divide(np.float32(levels), amax, out=np.zeros_like(amax), where=amax > 0)
        d = amax / np.float32(levels)
        if scale_type is not None:
            d = d.astype(scale_type)
        out[..., start : start + block] = np.rint(part * inverse).astype(np.float64) * d.astype(np.float64)
    return out


class Variant:
    """What is quantised and how. layers None means all; sites are names of SITES.

    split names the sites that get a second int8 of the remainder (two dot products, about 15 bits). kv rounds K and V
    to a numpy type. fixed_routes imposes the float pass's experts (the weights are still the quantised pass's).
    """

    def __init__(
        self, sites=SITES, layers=None, block=32, levels=127, kv=None, scale_type=None, split=(), fixed_routes=False
    ):
        self.sites, self.layers, self.block, self.levels = frozenset(sites), layers, block, levels
        self.kv, self.scale_type, self.split, self.fixed_routes = kv, scale_type, frozenset(split), fixed_routes

    def __call__(self, x, site, layer):
        if site not in self.sites or (self.layers is not None and layer not in self.layers):
            return x
        q = quantise(x, self.block, self.levels, self.scale_type)
        if site in self.split:
            q = q + quantise(x - q, self.block, self.levels, self.scale_type)
        return q


class Qwen3Moe:
    """The family's equations in float64 numpy; weights are float64 copies of the checkpoint's."""

    def __init__(self, folder):
        self.config = json.load(open(os.path.join(folder, "config.json")))
        with safe_open(os.path.join(folder, "model.safetensors"), framework="pt") as f:
            self.w = {name: f.get_tensor(name).to(torch.float64).numpy() for name in f.keys()}
        c = self.config
        self.layers, self.heads, self.kv_heads = (
            c["num_hidden_layers"],
            c["num_attention_heads"],
            c["num_key_value_heads"],
        )
        self.head_dim, self.eps, self.top_k = c["head_dim"], c["rms_norm_eps"], c["num_experts_per_tok"]
        self.theta = c["rope_parameters"]["rope_theta"]
        self.experts = c["num_local_experts"]

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rope(self, x):
        """x [tokens, heads, head_dim], half-split pairs, positions from 0."""
        half = self.head_dim // 2
        inverse = self.theta ** (-np.arange(half) / half)
        angle = np.arange(x.shape[0])[:, None] * inverse
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    def attention(self, a, p, variant):
        t = a.shape[0]
        q = (a @ self.w[p + "q_proj.weight"].T).reshape(t, self.heads, self.head_dim)
        k = (a @ self.w[p + "k_proj.weight"].T).reshape(t, self.kv_heads, self.head_dim)
        v = (a @ self.w[p + "v_proj.weight"].T).reshape(t, self.kv_heads, self.head_dim)
        q = self.rope(self.norm(q, self.w[p + "q_norm.weight"]))
        k = self.rope(self.norm(k, self.w[p + "k_norm.weight"]))
        if variant.kv is not None:
            k, v = (z.astype(variant.kv).astype(np.float64) for z in (k, v))
        k, v = (np.repeat(z, self.heads // self.kv_heads, 1) for z in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.head_dim)
        s = np.where(np.tril(np.ones((t, t), bool)), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", e / e.sum(-1, keepdims=True), v).reshape(t, -1)

    def moe(self, m, layer, variant, routes):
        """m [tokens, hidden]; routes: experts to use [tokens, top_k] or None; returns (y, the experts, sorted)."""
        p = f"model.layers.{layer}.mlp."
        logits = m @ self.w[p + "gate.weight"].T
        e = np.exp(logits - logits.max(-1, keepdims=True))
        prob = e / e.sum(-1, keepdims=True)
        chosen = np.argsort(-prob, -1, kind="stable")[:, : self.top_k] if routes is None else routes
        weight = np.take_along_axis(prob, chosen, -1)
        if self.config["norm_topk_prob"]:
            weight = weight / weight.sum(-1, keepdims=True)
        x = variant(m, "gate_up", layer)
        y = np.zeros_like(m)
        for expert in range(self.experts):
            row, slot = np.nonzero(chosen == expert)
            if row.size == 0:
                continue
            g, u, d = (self.w[f"{p}experts.{expert}.{n}_proj.weight"] for n in ("gate", "up", "down"))
            gate = x[row] @ g.T
            h = gate / (1 + np.exp(-gate)) * (x[row] @ u.T)
            y[row] += (variant(h, "down", layer) @ d.T) * weight[row, slot, None]
        return y, np.sort(chosen, -1)

    def forward(self, ids, variant, float_routes=None):
        """Returns (logits [tokens, vocab], routes [layers, tokens, top_k]); float_routes for variant.fixed_routes."""
        x = self.w["model.embed_tokens.weight"][ids]
        routes = []
        for n in range(self.layers):
            p = f"model.layers.{n}."
            a = variant(self.norm(x, self.w[p + "input_layernorm.weight"]), "qkv", n)
            a = variant(self.attention(a, p + "self_attn.", variant), "o", n)
            x = x + a @ self.w[p + "self_attn.o_proj.weight"].T
            m = self.norm(x, self.w[p + "post_attention_layernorm.weight"])
            y, chosen = self.moe(m, n, variant, float_routes[n] if variant.fixed_routes else None)
            x = x + y
            routes.append(chosen)
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return variant(self.norm(x, self.w["model.norm.weight"]), "head", self.layers) @ head.T, np.array(routes)


def relative(a, b):
    """||a - b|| / ||b|| over everything."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="../shared/models/libris", help="folder with config.json, model.safetensors")
    parser.add_argument("--golden", default="../shared/models/libris-golden")
    parser.add_argument("--csv", help="also write every (variant, prompt, error) as CSV")
    args = parser.parse_args()

    model = Qwen3Moe(args.model)
    prompts = json.load(open(os.path.join(args.golden, "golden.json")))
    golden = load_file(os.path.join(args.golden, "golden_logits.safetensors"))
    golden = [golden[f"logits.{i}"].astype(np.float64) for i in range(len(prompts))]
    ids = [np.array(p["ids"]) for p in prompts]
    float_routes = [model.forward(i, Variant(sites=()))[1] for i in ids]
    rows = []

    def run(name, variant):
        errors, largest, flips, rerouted = [], 0.0, 0, 0
        for i, g in enumerate(golden):
            logits, routes = model.forward(ids[i], variant, float_routes[i])
            errors.append(relative(logits, g))
            largest = max(largest, float(np.abs(logits - g).max()))
            flips += int((logits.argmax(-1) != g.argmax(-1)).sum())
            rerouted += int((routes != float_routes[i]).any(-1).sum())
            rows.append((name, i, errors[-1]))
        print(
            f"{name:34} " + " ".join(f"{e:8.2e}" for e in errors) + f"  max {max(errors):8.2e} "
            f"mean {np.mean(errors):8.2e}  abs {largest:6.1e}  flips {flips}  rerouted {rerouted}",
            flush=True,
        )

    def greedy(variant):
        for i, p in enumerate(prompts):
            start, tokens = len(p["ids"]), np.array(p["greedy_ids"])
            logits, _ = model.forward(tokens[:-1], variant)
            error = np.abs(logits[:start] - golden[i]).max()
            wrong = np.nonzero(logits[start - 1 :].argmax(-1) != tokens[start:])[0]
            below = [n for n, m in enumerate(p["greedy_margin"]) if m < error]
            first = f"{wrong[0]} (margin {p['greedy_margin'][wrong[0]]})" if wrong.size else "none"
            print(
                f"  prompt {i}: largest logit error {error:.3f}; first step with a smaller margin "
                f"{below[0] if below else 'none'}; first step with another token {first}"
            )

    total = sum(len(i) for i in ids)
    print(f"{len(ids)} prompts, {total} rows, {total * model.layers} routes; relative L2 of the logits per prompt")
    run("float64, nothing quantised", Variant(sites=()))
    run("rule 2: int8, blocks of 32", Variant())
    run("rule 2 and KV f16", Variant(kv=np.float16))
    run("KV f16 alone", Variant(sites=(), kv=np.float16))
    print("\none site alone, all layers")
    for site in SITES:
        run("  " + site, Variant(sites=(site,)))
    print("\nall sites but one")
    for site in SITES:
        run("  without " + site, Variant(sites=[s for s in SITES if s != site]))
    print("\none layer alone, all its sites")
    for layer in range(model.layers):
        run(f"  layer {layer}", Variant(layers={layer}))
    print("\nother quantisers, all sites")
    for block in (8, 16, 64, 128, 256):
        run(f"  int8, blocks of {block}", Variant(block=block))
    run("  int8, blocks of 32, d in f16", Variant(scale_type=np.float16))
    run("  int16 (32767), blocks of 32", Variant(levels=32767))
    run("  12 bits (2047), blocks of 32", Variant(levels=2047))
    run("  10 bits (511), blocks of 32", Variant(levels=511))
    run("  int8 and int8 of the rest", Variant(split=SITES))
    run("  the same in the head only", Variant(split=("head",)))
    run("  the same in head and down", Variant(split=("head", "down")))
    run("  the same in all but gate_up", Variant(split=[s for s in SITES if s != "gate_up"]))
    run("  rule 2, float routes imposed", Variant(fixed_routes=True))
    print("\ngreedy continuation, rule 2")
    greedy(Variant())
    print("greedy continuation, rule 2 and KV f16")
    greedy(Variant(kv=np.float16))

    if args.csv:
        with open(args.csv, "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(("variant", "prompt", "relative_l2"))
            out.writerows((n.strip(), i, f"{e:.6e}") for n, i, e in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
