"""The trainer's byte-level GPT-2 in PyTorch, fp32: the same names, initial values,
windows of text and learning rates as `commsched-train`, so that losses agree."""

import math
import pathlib
import subprocess
import sys

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "test/trainer"))
# pylint: disable=wrong-import-position
from reference import MASK, mix64, GOLDEN, random_bits, random_normal, stream_of

# Layers, heads, channels, peak of the learning rate (examples/trainer/config.cc).
PRESETS = {"nano": (4, 4, 128, 3e-3), "mini": (6, 6, 384, 1e-3),
           "small": (12, 12, 768, 6e-4)}
VOCAB, CONTEXT = 256, 128
BETAS, EPSILON, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
WARMUP_STEPS, FINAL_FRACTION = 30, 0.1


class Linear(nn.Module):
  """With weights [inputs, outputs], as GPT-2 has them."""

  def __init__(self, inputs, outputs):
    super().__init__()
    self.weight = nn.Parameter(torch.zeros(inputs, outputs))
    self.bias = nn.Parameter(torch.zeros(outputs))

  def forward(self, x):
    flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
    return flat.view(*x.shape[:-1], -1)


class Attention(nn.Module):

  def __init__(self, channels, heads):
    super().__init__()
    self.heads = heads
    self.c_attn = Linear(channels, 3 * channels)
    self.c_proj = Linear(channels, channels)

  def forward(self, x):
    batch, tokens, channels = x.shape
    parts = self.c_attn(x).view(batch, tokens, 3, self.heads, -1)
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, channels))


class Mlp(nn.Module):

  def __init__(self, channels):
    super().__init__()
    self.c_fc = Linear(channels, 4 * channels)
    self.c_proj = Linear(4 * channels, channels)

  def forward(self, x):
    return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):

  def __init__(self, channels, heads):
    super().__init__()
    self.ln_1 = nn.LayerNorm(channels)
    self.attn = Attention(channels, heads)
    self.ln_2 = nn.LayerNorm(channels)
    self.mlp = Mlp(channels)

  def forward(self, x):
    x = x + self.attn(self.ln_1(x))
    return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
  """Returns the loss; the output layer is the token embedding's."""

  def __init__(self, preset):
    super().__init__()
    layers, heads, channels, _ = PRESETS[preset]
    self.wte = nn.Embedding(VOCAB, channels)
    self.wpe = nn.Embedding(CONTEXT, channels)
    self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
    self.ln_f = nn.LayerNorm(channels)

  def forward(self, tokens, targets):
    x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
    for block in self.h:
      x = block(x)
    logits = F.linear(self.ln_f(x), self.wte.weight)
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def initial(name, shape, layers, seed):
  if len(shape) == 1:
    is_norm = ".ln_" in "." + name and name.endswith("weight")
    return torch.full(shape, float(is_norm))
  deviation = 0.02
  if name.endswith("c_proj.weight"):
    deviation /= math.sqrt(2.0 * layers)
  values = deviation * random_normal(seed, stream_of(name), math.prod(shape))
  return torch.from_numpy(values.astype(np.float32)).view(shape)


def new_model(preset, cache, seed=1):
  """With the trainer's initial values, kept in the folder `cache`: they take a
  minute."""
  model = Gpt(preset)
  path = pathlib.Path(cache) / f"{preset}-{seed}.pt"
  if not path.exists():
    values = {name: initial(name, parameter.shape, PRESETS[preset][0], seed)
              for name, parameter in model.named_parameters()}
    torch.save(values, path)
  model.load_state_dict(torch.load(path))
  return model


def decay_groups(model):
  """As the trainer: matrices decay, vectors do not."""
  parameters = list(model.parameters())
  return [{"params": [p for p in parameters if p.dim() >= 2],
           "weight_decay": WEIGHT_DECAY},
          {"params": [p for p in parameters if p.dim() < 2],
           "weight_decay": 0.0}]


class Text:
  """examples/trainer/data.cc: which bytes a sequence of a step is."""

  def __init__(self, seq, seed=1):
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          check=True).stdout
    self.text = np.frombuffer(text, dtype=np.uint8)
    self.train = self.text[:len(self.text) - len(self.text) // 10]
    self.seq, self.seed = seq, seed

  def batch(self, step, first, count):
    stream = stream_of("training sequences")
    key = mix64(mix64((self.seed + GOLDEN) & MASK) ^ stream)
    step_seed = mix64((key + (step + 1) * GOLDEN) & MASK)
    bound = len(self.train) - self.seq
    starts = [int(bits) * bound >> 64
              for bits in random_bits(step_seed, stream, first + count)[first:]]
    rows = np.stack([self.train[s:s + self.seq + 1] for s in starts])
    rows = torch.from_numpy(rows.astype(np.int64))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def learning_rate(peak, step, steps):
  """examples/trainer/schedule.h"""
  if step < WARMUP_STEPS:
    return peak * (step + 1) / WARMUP_STEPS
  span = steps - WARMUP_STEPS
  progress = 1.0 if span <= 0 else min(1.0, (step + 1 - WARMUP_STEPS) / span)
  cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
  return peak * (FINAL_FRACTION + (1.0 - FINAL_FRACTION) * cosine)
