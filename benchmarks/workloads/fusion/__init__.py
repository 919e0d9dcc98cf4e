"""What fusion and bandwidth decide: normalisations, reductions, layers with their surroundings, transpositions, pictures."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.workload import Peer
from benchmarks.workloads.fusion import blocks, moves, pictures, rows
from benchmarks.workloads.fusion.common import in_numba

_USUAL = (*rows.WORKLOADS, *blocks.WORKLOADS, *moves.WORKLOADS, *pictures.WORKLOADS)

WORKLOADS = (*_USUAL, *moves.LARGE)

NUMBA: Mapping[str, Peer] = {
    "softmax": in_numba("softmax", (4096, 1024)),
    "layernorm": in_numba("layernorm", (4096, 1024)),
    "gelu_bias": in_numba("gelu_bias", (4096, 4096)),
    "dot": in_numba("dot", ()),
    "attention": in_numba("attention", (8, 12, 128, 64)),
    "maxpool": in_numba("maxpool", (8, 64, 56, 56)),
    "embedding_sum": in_numba("embedding", (128, 64)),
}
"""Workloads that were there before, with the peers that they lack."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "fusion": (*NUMBA, *(w.name for w in _USUAL)),
    "fusion_large": tuple(w.name for w in moves.LARGE),
}
