"""Goldens of block diffusion (DiffusionGemma): denoising steps with given canvases. See make_goldens.py.

golden.json, for each prompt:
  prompt, ids     the encoder's tokens
  blocks          one or two canvases after each other; each has
    steps         [{canvas: the tokens that enter the decoder, temperature, argmax, entropy, accepted}]
    committed     the last step's argmax canvas, which the encoder appends before the next block
golden_logits.safetensors: logits.PROMPT.BLOCK.STEP [canvas, vocab] f32, softcapped, before the temperature.

Step s of S has n = S - s steps left and the temperature t_min + (t_max - t_min) * n / S, with the model's defaults
0.4 and 0.8. The first step of a block has no self-conditioning; the others get the previous step's logits divided by
that step's temperature. entropy is the entropy (nats) of softmax(logits / temperature); accepted lists the positions
that the entropy bound accepts, in ascending order. The bound is 0.1 in the released model; these random logits are far
from certain, so BOUND here is larger. Canvases are given, not sampled: step 0 is random, and each next canvas keeps the
argmax at the accepted positions and takes fresh random tokens elsewhere.
"""

import numpy as np
import torch
from transformers import DynamicCache
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
)

T_MIN, T_MAX, BOUND = 0.4, 0.8, 2.0
PLAN = ((3, 1), (1,), (1,))  # for each prompt: the steps of each block


def step(model, cache, canvas, conditioning):
    with torch.inference_mode():
        return model(
            decoder_input_ids=torch.tensor([canvas]), cache=cache, self_conditioning_logits=conditioning
        ).logits[0]


def encode(model, cache, ids):
    with torch.inference_mode():
        model.model.encoder(input_ids=torch.tensor([ids]), cache=cache)


def accept(processed):
    """Positions that transformers' own sampler accepts of logits [1, canvas, vocab], already divided by the temperature."""
    sampler = EntropyBoundSampler(EntropyBoundSamplerConfig(entropy_bound=BOUND), *processed.shape[1:], 0)
    any_canvas = torch.zeros(processed.shape[:2], dtype=torch.long)
    sampler.accept_canvas(any_canvas, any_canvas, processed, 0)
    return sampler.accepted_token_mask[0].nonzero().flatten().tolist()


def run(model, prompt_ids, plan, canvases):
    """canvases(block, step, previous, accepted, argmax) gives the next canvas. Returns (blocks, {name: logits})."""
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    encode(model, cache, prompt_ids)
    blocks, tensors = [], {}
    for b, count in enumerate(plan):
        conditioning, steps, accepted, argmax = None, [], None, None
        for s in range(count):
            canvas = canvases(b, s, accepted, argmax)
            temperature = T_MIN + (T_MAX - T_MIN) * (count - s) / count
            logits = step(model, cache, canvas, conditioning)
            tensors[f"{b}.{s}"] = logits
            conditioning = (logits / temperature)[None]
            entropy = torch.distributions.Categorical(logits=conditioning[0]).entropy().numpy()
            accepted, argmax = accept(conditioning), logits.argmax(-1).tolist()
            steps.append(
                {
                    "canvas": canvas,
                    "temperature": temperature,
                    "argmax": argmax,
                    "entropy": [round(float(e), 5) for e in entropy],
                    "accepted": accepted,
                }
            )
        blocks.append({"steps": steps, "committed": argmax})
        if b + 1 < len(plan):
            encode(model, cache, argmax)
    return blocks, tensors


def goldens(model, tiny, prompts):
    """(entries, tensors, facts for models.json)"""
    random = np.random.default_rng(1)
    vocab, length = model.config.text_config.vocab_size, model.config.canvas_length

    def canvases(_block, _step, accepted, argmax):
        canvas = random.integers(0, vocab, length).tolist()
        for p in accepted or []:
            canvas[p] = argmax[p]
        return canvas

    entries, tensors = [], {}
    for i, (prompt, plan) in enumerate(zip(prompts, PLAN)):
        ids = tiny.tokenizer.encode(prompt).ids
        blocks, logits = run(model, ids, plan, canvases)
        entries.append({"prompt": prompt, "ids": ids, "entropy_bound": BOUND, "blocks": blocks})
        tensors.update((f"logits.{i}.{n}", t) for n, t in logits.items())
    everything = torch.cat([t.flatten() for t in tensors.values()])
    return (
        entries,
        tensors,
        {"logit_std": round(float(everything.std()), 3), "logit_max": round(float(everything.abs().max()), 2)},
    )


def check(model, entries, tensors, folder):
    """The reloaded model must give the same bits for the same canvases."""
    for i, entry in enumerate(entries):
        given = [b["steps"] for b in entry["blocks"]]
        _, logits = run(model, entry["ids"], [len(s) for s in given], lambda b, s, *_: given[b][s]["canvas"])
        for name, tensor in logits.items():
            if not torch.equal(tensor, tensors[f"logits.{i}.{name}"]):
                raise SystemExit(f"{folder}: logits.{i}.{name} differ after loading")
