"""Operators on chunked arrays against the same operators on whole ones: random chunks, and blocks that are interpreted.

Interpreting blocks (`interpreted`) costs no compilation, and shares no code with what plans them but the ranges."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from polyc.api import blocks
from polyc.ir.interpret import interpret
from polyc.ir.program import Program


class Interpreted:
    """Stands for the operator of a class of blocks."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def specialize(self, *example: Any) -> None:
        """Nothing is compiled."""

    def temporary_bytes(self, arrays: Sequence[Any], named: Mapping[str, int]) -> int:
        """Nothing is stored."""
        return 0

    def __call__(self, *arrays: Any) -> Any:
        names = self.program.parameters
        given = {n: np.asarray(a, self.program.tensor(n).dtype.numpy) for n, a in zip(names, arrays, strict=True)}
        made = interpret(self.program, given)
        results = tuple(made[r.name] for r in self.program.returns)
        return results if len(results) > 1 else results[0]


@contextmanager
def interpreted() -> Iterator[None]:
    """Blocks are interpreted, not compiled."""
    with patch.object(blocks, "make_operator", lambda operator, program: Interpreted(program)):
        yield


def random_chunks(source: random.Random, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """One chunk, chunks of one element, or ragged ones, along each dimension."""
    return tuple(_random_lengths(source, n) for n in shape)


def _random_lengths(source: random.Random, extent: int) -> tuple[int, ...]:
    kind = source.choice(["whole", "single", "ragged", "ragged", "even"])
    if kind == "whole" or extent == 0:
        return (extent,)
    if kind == "single":
        return (1,) * extent
    lengths: list[int] = []
    even = source.randint(1, extent)
    while sum(lengths) < extent:
        lengths.append(min(extent - sum(lengths), even if kind == "even" else source.randint(1, extent // 2 + 1)))
    return tuple(lengths)


def chunk(source: random.Random, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Each array in random chunks; numbers as they are."""
    import dask.array as da

    return {
        n: da.from_array(a, chunks=random_chunks(source, a.shape)) if isinstance(a, np.ndarray) else a
        for n, a in arrays.items()
    }


def compare(results: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Dask arrays against NumPy's: shape, type, declared chunks, and values (bit by bit where both tolerances are 0)."""
    import dask

    several = isinstance(expected, tuple)
    pairs = zip(results, expected, strict=True) if several else [(results, expected)]
    for result, whole in pairs:
        assert tuple(map(sum, result.chunks)) == whole.shape
        assert result.dtype == whole.dtype
        (value,) = dask.compute(result, scheduler="synchronous")
        assert value.dtype == whole.dtype
        np.testing.assert_allclose(value, whole, rtol=rtol, atol=atol, equal_nan=True)
