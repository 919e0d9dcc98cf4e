"""Networks for text: BERT's encoder, GPT-2's block with a key-value cache, an LSTM classifier."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention of several heads, written out: ``[n, s, d]`` → ``[n, s, d]``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.output(mixed.transpose(1, 2).reshape(x.shape))


class EncoderLayer(nn.Module):
    """Normalised behind each residual, as BERT has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.outer(nn.functional.gelu(self.inner(x))))


class Bert(nn.Module):
    """BERT's encoder (Devlin et al. 2019): identifiers, mask, segments ``[n, s]`` → ``[n, s, d]``, ``[n, d]``."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 30522, longest: int = 512
    ) -> None:
        super().__init__()
        self.words, self.places, self.segments = (nn.Embedding(n, width) for n in (vocabulary, longest, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.register_buffer("numbers", torch.arange(longest)[None])

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places(self.numbers[:, : ids.shape[1]])
        x = self.norm(self.words(ids) + places + self.segments(segments))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


class GptBlock(nn.Module):
    """GPT-2's block (Radford et al. 2019) with earlier keys and values: ``[n, s, d]`` and ``[n, h, p, d/h]`` twice."""

    def __init__(self, width: int = 768, heads: int = 12, longest: int = 1024) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("allowed", torch.tril(torch.ones(longest, longest, dtype=torch.bool)))

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (self.split(part) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        key, value = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
        total, new = key.shape[2], q.shape[2]
        scores = q @ key.transpose(-1, -2) / math.sqrt(q.shape[-1])
        allowed = self.allowed[total - new : total, :total]
        scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
        mixed = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).reshape(x.shape)
        x = x + self.output(mixed)
        return x + self.outer(nn.functional.gelu(self.inner(self.norm2(x)), approximate="tanh")), key, value


class LstmClassifier(nn.Module):
    """Two LSTM layers in both directions, the mean over time, classes: identifiers ``[n, s]`` → ``[n, classes]``."""

    def __init__(self, vocabulary: int = 10000, width: int = 128, hidden: int = 256, classes: int = 5) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(2 * hidden, classes)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.lstm(self.words(ids))
        return self.classifier(states.mean(dim=1))
