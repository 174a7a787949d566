"""A small GPT on bytes, and the text that all the ways train it on."""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

VOCABULARY, LENGTH = 256, 64


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

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        read, told = text[:, :-1], text[:, 1:]
        x = self.bytes(read) + self.places(torch.arange(read.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1),
                                        told.flatten())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="commsched")
    parser.add_argument("--data", type=pathlib.Path, help="a text",
                        default=pathlib.Path(__file__).parents[2] / "LICENSE")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    return parser.parse_args()


def model(options: argparse.Namespace) -> Gpt:
    """The same on all ranks."""
    torch.manual_seed(1)
    return Gpt(options.width, options.layers)


def batch(text: torch.Tensor, step: int, size: int) -> torch.Tensor:
    """This rank's part of a step's batch."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size()
                                              + dist.get_rank())
    starts = torch.randint(0, len(text) - LENGTH, (size,), generator=generator)
    return torch.stack([text[start:start + LENGTH] for start in starts.tolist()])


def train(options: argparse.Namespace, wrap: Callable[[Gpt], Any]) -> Any:
    """Trains what `wrap` makes of the model, and returns it. Rank 0 prints the mean
    loss of the ranks."""
    text = torch.frombuffer(bytearray(options.data.read_bytes()),
                            dtype=torch.uint8).long()
    network = model(options)
    wrapped = wrap(network)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=3e-3)
    begun = time.monotonic()
    for step in range(options.steps):
        loss = wrapped(batch(text, step, options.batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0 and step % 5 in (0, 4):
            print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}")
    if dist.get_rank() == 0:
        print(f"{(time.monotonic() - begun) / options.steps * 1e3:.0f} ms per step")
    return wrapped
