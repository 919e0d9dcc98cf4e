"""A program at the sizes of a call, and its ranges: what the shapes of results and the compilation both begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from polyc.ir.expr import int_const
from polyc.ir.program import Program, specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges


@dataclass(eq=False)
class Sized:
    """`program` is `source` with numbers for `sizes`, and every size expression defined (`define_sizes`)."""

    source: Program
    sizes: dict[str, int]
    program: Program

    @cached_property
    def ranges(self) -> Ranges:
        """Inferred once.  Raises what `infer_ranges` raises."""
        return infer_ranges(self.program, (lambda: define_sizes(self.source)) if self.sizes else None)


_last: list[Sized] = []
"""The program that was asked for last: the shapes of a call's results are found just before a kernel for it is compiled."""


def size_program(source: Program, sizes: Mapping[str, int]) -> Sized:
    """`source` at these sizes.  The caller holds the compile lock."""
    if not _last or _last[0].source is not source or _last[0].sizes != dict(sizes):
        program = define_sizes(specialize_sizes(source, {name: int_const(value) for name, value in sizes.items()}))
        _last[:] = [Sized(source, dict(sizes), program)]
    return _last[0]
