"""What the training tests train: a small GPT on made-up text, from fixed seeds."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
import torch.nn.functional as functional
from torch import nn

VOCABULARY, LENGTH, BATCH = 97, 24, 2


class Block(nn.Module):

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(
            batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """`spare`: a layer that only even batches use."""

    def __init__(self, width: int = 32, layers: int = 3, spare: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.spare = nn.Linear(width, width) if spare else None
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, text: torch.Tensor, use_spare: bool = False) -> torch.Tensor:
        read, told = text[:, :-1], text[:, 1:]
        x = self.words(read) + self.places(torch.arange(read.shape[1]))
        for block in self.blocks:
            x = block(x)
        if use_spare:
            x = x + self.spare(x)
        return functional.cross_entropy(
            self.head(self.norm(x)).flatten(0, 1).float(), told.flatten())


def gpt(**options: Any) -> Gpt:
    torch.manual_seed(7)
    return Gpt(**options)


def text(step: int, rank: int) -> torch.Tensor:
    """A batch with something to learn in it."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    made = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    return (made // 3 + torch.arange(LENGTH)) % VOCABULARY


def optimizer_of(module: nn.Module) -> torch.optim.Optimizer:
    """One that makes no more of the last bits of a gradient than they are."""
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


Trained = Tuple[List[float], Dict[str, torch.Tensor]]


def difference(one: Trained, other: Trained) -> float:
    """How far two trainings are from each other: relative, in the L2 norm."""
    worst = max(abs(a - b) / abs(a) for a, b in zip(one[0], other[0])) if one[0] else 0.0
    for name, tensor in one[1].items():
        gap = (tensor.double() - other[1][name].double()).norm()
        worst = max(worst, float(gap / tensor.double().norm().clamp_min(1e-30)))
    return worst
