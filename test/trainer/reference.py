#!/usr/bin/env python3
"""Writes reference_nano.json: what PyTorch computes for the nano model, fp64.

Run it with a Python that has torch and numpy (Debian: python3-torch) after a
change of the model or of the generator, and commit what it writes:

    /usr/bin/python3 test/trainer/reference.py

Weights and tokens come from the counter-based generator of
examples/trainer/random.h, written again below, so that neither has to be
stored. parity_test.cc and engine_parity_test.cc read the file and need no
PyTorch.
"""

import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

VOCAB, CONTEXT, LAYERS, HEADS, CHANNELS = 256, 128, 4, 4, 128
# 96 tokens are more than one block of attention rows and less than the context.
BATCH, SEQ, STEPS = 4, 96, 10
SEED, INIT_SEED = 2024, 1337
SAMPLES = 64
# The step that engine_parity_test.cc lets several ranks take.
RUN_BATCH, RUN_SEQ, RUN_SAMPLES = 8, 48, 16
PEAK, WARMUP, FINAL_FRACTION = 3e-3, 5, 0.1
BETAS, EPSILON, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# ---- examples/trainer/random.h ----------------------------------------------


def mix64(z):
    """SplitMix64's output function, of an int or of an array of uint64."""
    if isinstance(z, int):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_of(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def random_bits(seed, stream, count):
    """Numbers 0 to count - 1 of a stream."""
    key = mix64(mix64((seed + GOLDEN) & MASK) ^ stream)
    index = np.arange(1, count + 1, dtype=np.uint64)
    return mix64(np.uint64(key) + index * np.uint64(GOLDEN))


def random_below(bound, seed, stream, count):
    return [int(b) * bound >> 64 for b in random_bits(seed, stream, count)]


def random_normal(seed, stream, count):
    """math, not numpy, whose vector log and cos differ from libm's."""
    uniform = (random_bits(seed, stream, 2 * count) >> np.uint64(11)) * 2.0**-53
    pairs = uniform.reshape(count, 2).tolist()
    return np.array([
        math.sqrt(-2.0 * math.log(1.0 - radius)) *
        math.cos(6.283185307179586 * angle) for radius, angle in pairs
    ])


# ---- The model --------------------------------------------------------------


def parameter_shapes(kv_heads=HEADS):
    kv_channels = CHANNELS // HEADS * kv_heads
    shapes = {"wte.weight": (VOCAB, CHANNELS), "wpe.weight": (CONTEXT, CHANNELS)}

    def norm(name):
        shapes[name + ".weight"] = (CHANNELS,)
        shapes[name + ".bias"] = (CHANNELS,)

    def linear(name, inputs, outputs):
        shapes[name + ".weight"] = (inputs, outputs)
        shapes[name + ".bias"] = (outputs,)

    for layer in range(LAYERS):
        norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", CHANNELS,
               CHANNELS + 2 * kv_channels)
        linear(f"h.{layer}.attn.c_proj", CHANNELS, CHANNELS)
        norm(f"h.{layer}.ln_2")
        linear(f"h.{layer}.mlp.c_fc", CHANNELS, 4 * CHANNELS)
        linear(f"h.{layer}.mlp.c_proj", 4 * CHANNELS, CHANNELS)
    norm("ln_f")
    return shapes


def is_norm_weight(name):
    return name.endswith("weight") and ".ln_" in "." + name


def normal_weights(name, shape, seed, constant, deviation):
    count = math.prod(shape)
    values = constant + deviation * random_normal(seed, stream_of(name), count)
    return values.astype(np.float32).reshape(shape)


def test_weights(name, shape):
    """Nothing at zero or one, so that every path has a gradient to be wrong."""
    deviation = 0.05 if len(shape) == 2 else 0.1
    constant = 1.0 if is_norm_weight(name) else 0.0
    return normal_weights(name, shape, SEED, constant, deviation)


def gpt2_init(name, shape):
    if len(shape) == 1:
        return np.full(shape, is_norm_weight(name), np.float32)
    deviation = 0.02
    if name.endswith("c_proj.weight"):
        deviation /= math.sqrt(2.0 * LAYERS)
    return normal_weights(name, shape, INIT_SEED, 0.0, deviation)


def forward(p, tokens, kv_heads=HEADS):
    """GPT-2 as in Hugging Face's GPT2LMHeadModel without dropout.

    With fewer heads of keys and values each serves neighbouring queries.
    """
    batch, seq = tokens.shape
    x = p["wte.weight"][tokens] + p["wpe.weight"][:seq]
    mask = torch.full((seq, seq), -torch.inf, dtype=x.dtype).triu(1)

    def norm(name, value):
        return F.layer_norm(value, (CHANNELS,), p[name + ".weight"],
                            p[name + ".bias"], 1e-5)

    def linear(name, value):
        return value @ p[name + ".weight"] + p[name + ".bias"]

    def heads(value):
        split = value.view(batch, seq, -1, CHANNELS // HEADS).transpose(1, 2)
        return split.repeat_interleave(HEADS // split.shape[1], 1)

    kv_channels = CHANNELS // HEADS * kv_heads
    parts = [CHANNELS, kv_channels, kv_channels]

    for layer in range(LAYERS):
        block = f"h.{layer}."
        qkv = linear(block + "attn.c_attn", norm(block + "ln_1", x))
        q, k, v = (heads(part) for part in qkv.split(parts, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(CHANNELS // HEADS) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, -1)
        x = x + linear(block + "attn.c_proj", y)
        hidden = linear(block + "mlp.c_fc", norm(block + "ln_2", x))
        hidden = F.gelu(hidden, approximate="tanh")
        x = x + linear(block + "mlp.c_proj", hidden)
    return norm("ln_f", x) @ p["wte.weight"].T


def loss_of(logits, targets):
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def learning_rate(step):
    """examples/trainer/schedule.h."""
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = min(1.0, (step + 1 - WARMUP) / (STEPS - WARMUP))
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return PEAK * (FINAL_FRACTION + (1.0 - FINAL_FRACTION) * cosine)


# ---- What is written --------------------------------------------------------


def sample_indices(name, count, samples):
    return random_below(count, SEED, stream_of("sample " + name), samples)


def digest(name, values, samples=SAMPLES):
    """Enough of a tensor to tell it from a wrong one.

    Nine digits of each sample: what tells one fp32 number from the next.
    """
    flat = values.reshape(-1)
    projection = random_normal(SEED, stream_of("projection " + name), flat.size)
    return {
        "norm": float(np.linalg.norm(flat)),
        "projection": float(flat @ projection),
        "samples": [float(f"{value:.9g}")
                    for value in flat[sample_indices(name, flat.size, samples)]],
    }


def model(kv_heads=HEADS):
    return {name: torch.from_numpy(test_weights(name, shape)).double()
                  .requires_grad_()
            for name, shape in parameter_shapes(kv_heads).items()}


def run_tokens():
    """The first batch that Sampler (examples/trainer/data.h) draws with seed 1
    from NoiseDataset (training_ranks.h)."""
    text = random_below(VOCAB, 1, 2, 20000)
    starts = len(text) - len(text) // 10 - RUN_SEQ
    stream = stream_of("training sequences")
    step_seed = int(random_bits(1, stream, 1)[0])
    rows = [text[start:start + RUN_SEQ + 1] for start in
            random_below(starts, step_seed, stream, RUN_BATCH)]
    return torch.tensor(rows)


def run(kv_heads):
    """Loss and gradients of a batch that ranks share out."""
    p = model(kv_heads)
    text = run_tokens()
    loss = loss_of(forward(p, text[:, :-1], kv_heads), text[:, 1:])
    loss.backward()
    return {
        "kv_heads": kv_heads,
        "loss": loss.item(),
        "gradients": {name: digest(name, v.grad.numpy(), RUN_SAMPLES)
                      for name, v in p.items()},
    }


def train(p, tokens, targets):
    matrices = [v for v in p.values() if v.dim() >= 2]
    vectors = [v for v in p.values() if v.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY},
         {"params": vectors, "weight_decay": 0.0}],
        lr=PEAK, betas=BETAS, eps=EPSILON)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = loss_of(forward(p, tokens), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    p = model()
    text = random_below(VOCAB, SEED, stream_of("tokens"), BATCH * (SEQ + 1))
    text = torch.tensor(text).view(BATCH, SEQ + 1)
    tokens, targets = text[:, :-1], text[:, 1:]

    logits = forward(p, tokens)
    loss = loss_of(logits, targets)
    loss.backward()
    reference = {
        "torch": torch.__version__,
        "batch": BATCH, "seq": SEQ, "seed": SEED, "init_seed": INIT_SEED,
        "adamw": {"beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON,
                  "weight_decay": WEIGHT_DECAY, "clip": CLIP},
        "schedule": {"peak": PEAK, "warmup_steps": WARMUP,
                     "total_steps": STEPS, "final_fraction": FINAL_FRACTION},
        "loss": loss.item(),
        "logits": digest("logits", logits.detach().numpy()),
        "gradients": {name: digest(name, v.grad.numpy())
                      for name, v in p.items()},
        "init": {name: digest(name, gpt2_init(name, shape).astype(np.float64))
                 for name, shape in parameter_shapes().items()},
        "runs": {"batch": RUN_BATCH, "seq": RUN_SEQ,
                 "of": [run(HEADS), run(HEADS // 2)]},
        "losses": train(p, tokens, targets),
    }
    path = pathlib.Path(__file__).with_name("reference_nano.json")
    path.write_text(json.dumps(reference, separators=(",", ":")) + "\n")
    print(f"{path}: loss {reference['loss']}, "
          f"after {STEPS} steps {reference['losses'][-1]}")


if __name__ == "__main__":
    main()
