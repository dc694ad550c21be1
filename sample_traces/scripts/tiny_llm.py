"""A small decoder-only transformer with random weights: big enough to behave like one, nothing to download.

Rotary positions, grouped-query attention, SwiGLU and a preallocated key/value cache, in plain torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 688
    vocabulary: int = 4096
    longest: int = 512

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Cache:
    """Keys and values of all tokens so far, one pair of buffers a layer."""

    def __init__(self, config: Config, batch: int) -> None:
        shape = (batch, config.kv_heads, config.longest, config.head_width)
        self.keys = [torch.zeros(shape) for _ in range(config.layers)]
        self.values = [torch.zeros(shape) for _ in range(config.layers)]
        self.length = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest tokens of a layer; returns all of it so far."""
        end = self.length + keys.shape[2]
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding; x is (batch, heads, tokens, head width)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        width, head = config.width, config.head_width
        self.q = nn.Linear(width, config.heads * head, bias=False)
        self.k = nn.Linear(width, config.kv_heads * head, bias=False)
        self.v = nn.Linear(width, config.kv_heads * head, bias=False)
        self.out = nn.Linear(config.heads * head, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache) -> Tensor:
        batch, tokens, _ = x.shape
        c = self.config
        q = self.q(x).view(batch, tokens, c.heads, c.head_width).transpose(1, 2)
        k = self.k(x).view(batch, tokens, c.kv_heads, c.head_width).transpose(1, 2)
        v = self.v(x).view(batch, tokens, c.kv_heads, c.head_width).transpose(1, 2)
        keys, values = cache.extend(self.layer, rotate(k, cos, sin), v)
        repeat = c.heads // c.kv_heads
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin),
            keys.repeat_interleave(repeat, dim=1),
            values.repeat_interleave(repeat, dim=1),
            is_causal=tokens > 1,
        )
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class Block(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.attention = Attention(config, layer)
        self.mlp_norm = RMSNorm(config.width)
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, cache)
        y = self.mlp_norm(x)
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class TinyLLM(nn.Module):
    """`model(input_ids, cache)` gives the logits of the last token, (batch, vocabulary)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        frequency = 1.0 / 10000 ** (torch.arange(0, config.head_width, 2) / config.head_width)
        angle = torch.outer(torch.arange(config.longest).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, input_ids: Tensor, cache: Cache) -> Tensor:
        start, tokens = cache.length, input_ids.shape[1]
        cos, sin = self.cos[start : start + tokens], self.sin[start : start + tokens]  # type: ignore[index]
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, cos, sin, cache)
        cache.length += tokens
        logits: Tensor = self.head(self.norm(x[:, -1]))
        return logits
