"""Golden models in FP8 blocks: E4M3 codes with one scale for each 128 x 128 values, as DeepSeek, Qwen and others publish."""

import torch

BLOCK = 128
LARGEST = 448.0  # of E4M3


def spread(scales, shape):
    """[ceil(rows / 128), ceil(cols / 128)] -> [rows, cols]; the last blocks are cut where the matrix ends."""
    return scales.repeat_interleave(BLOCK, 0)[: shape[0]].repeat_interleave(BLOCK, 1)[:, : shape[1]]


def codes(weight):
    """(E4M3 codes, BF16 scales) of [rows, cols]. The scales are rounded up, so codes never exceed the largest one and
    what was rounded once has the same codes again."""
    rows, cols = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-cols // BLOCK) * BLOCK)
    padded[:rows, :cols] = weight.float()
    exact = padded.reshape(-1, BLOCK, padded.shape[1] // BLOCK, BLOCK).abs().amax((1, 3)) / LARGEST
    scales = exact.to(torch.bfloat16)
    scales = torch.where(scales.float() < exact, (scales.view(torch.int16) + 1).view(torch.bfloat16), scales)
    return (weight.float() / spread(scales.float(), weight.shape)).to(torch.float8_e4m3fn), scales


def decoded(code, scales):
    """f32: what the codes stand for."""
    return code.float() * spread(scales.float(), code.shape)


def rounded(weight, halves=1):
    """The nearest values that FP8 blocks can hold; [.., rows, cols], the rows being `halves` matrices stacked."""
    if weight.dim() == 3:
        return torch.stack([rounded(w, halves) for w in weight])
    return torch.cat([decoded(*codes(part)) for part in weight.chunk(halves)])


def is_linear(name):
    return name.endswith("_proj.weight")


def blocks(state):
    """The layout with quant_method fp8: NAME.weight in E4M3 and NAME.weight_scale_inv."""
    out = {}
    for name, tensor in state.items():
        if is_linear(name):
            out[name], out[name + "_scale_inv"] = codes(tensor)
        else:
            out[name] = tensor.to(torch.bfloat16)
    return out


def check(state, saved):
    """The stored codes and scales give the model's own values, bit for bit."""
    linears = [n for n in saved if is_linear(n)]
    assert linears
    for name in linears:
        if not torch.equal(decoded(state[name], state[name + "_scale_inv"]), saved[name]):
            raise SystemExit(f"{name}: the FP8 codes are not what the model has")
