"""Sequences of different lengths: a parameter that a call gives as one argument and a program reads as two arrays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from polyc.diagnostics import Span
from polyc.ir.expr import Const, Expr, Size, int_const
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Ragged:
    """Sequences that are packed one behind the other, and offsets that say where each begins and ends.

    ``ragged float(B, L*, D) X`` is `data` of T × D elements, T the sum of all lengths, and `indptr` of B + 1: sequence b has
    the positions from ``indptr[b]`` to before ``indptr[b + 1]`` along the axis that L* stands for."""

    name: str
    axes: tuple[str, ...]
    """By dimension, ``L*`` where its length varies; else ""."""
    shape: tuple[Expr, ...] = ()
    """Extents, with a size of the name ``L*``; none of what a program computes, which inference finds."""
    span: Span | None = field(default=None, compare=False, repr=False)
    shares: str = ""
    """The parameter that has declared the same ``L*`` before: the offsets are its."""
    owner: str = ""
    """The parameter that has the offsets, where a program computes this."""
    format: str = "ragged"

    @property
    def axis(self) -> int:
        """The first dimension that varies."""
        return next(k for k, name in enumerate(self.axes) if name)

    @property
    def lengths_name(self) -> str:
        """``L`` of ``L*``: by that name a program reads lengths."""
        return self.axes[self.axis].removesuffix("*")

    @property
    def pattern(self) -> str:
        """The parameter whose offsets say where sequences begin."""
        return self.owner or self.shares or self.name

    @property
    def data(self) -> str:
        return f"{self.name}.values"

    @property
    def indptr(self) -> str:
        return f"{self.pattern}.offsets"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parameters of the program, in order."""
        return (self.data, *self.subscripts)

    @property
    def subscripts(self) -> tuple[str, ...]:
        """That which holds offsets, in the integers that a call chooses, where no other parameter has it."""
        return () if self.shares or self.owner else (self.indptr,)

    @property
    def n_entries(self) -> Size:
        """The sum of all lengths, as a size."""
        return Size(f"{self.lengths_name}.total", self.span)

    @property
    def part_shapes(self) -> tuple[tuple[Expr, ...], ...]:
        """Extents of the parts."""
        values = tuple(self.n_entries if name else e for e, name in zip(self.shape, self.axes, strict=True))[1:]
        n_sequences = self.shape[0]
        n_ends = int_const(int(n_sequences.value) + 1) if isinstance(n_sequences, Const) else n_sequences + 1
        return (values, *(((n_ends,),) if self.subscripts else ()))


def varying_axes(shape: tuple[Expr, ...]) -> tuple[str, ...]:
    """By dimension the name of a size that ends in ``*``, or ""."""
    return tuple(e.name if isinstance(e, Size) and e.name.endswith("*") else "" for e in shape)


def make_ragged(name: str, shape: tuple[Expr, ...], span: Span | None, before: Collection[object]) -> Ragged:
    """A parameter; `before`: those that are declared before it."""
    axes = varying_axes(shape)
    own = [a for a in axes if a]
    shared = next((r.name for r in before if isinstance(r, Ragged) and not r.shares and r.axes[r.axis] in own), "")
    return Ragged(name, axes, shape, span, shared)
