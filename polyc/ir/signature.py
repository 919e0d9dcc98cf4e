"""What a compiled entry point takes and gives: the value that code generation, runtime and ahead-of-time output share.

The entry point is
``int32 entry(void **data, const int64_t *sizes_and_strides, void *workspace, int64_t *error, int32 threads)`` with
``int64 entry_workspace(const int64_t *sizes_and_strides, int32 threads)`` bytes of workspace (64-byte aligned).
``data`` holds `arrays` in order (parameters in source order, then returns; an accumulated return once; scalars rank 0).
``sizes_and_strides`` holds `sizes`, then `defined_sizes`, then per array one byte stride per dimension (and for an array of
complex numbers the distance from the real to the imaginary part behind them).
``error`` gets check number, index value, bound (or what `RuntimeGuard.box` says); the result is 0, or 1 + the check number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from polyc.diagnostics import Span
from polyc.ir.expr import Expr, evaluate, int_const
from polyc.ir.operators import OPERATORS
from polyc.ir.types import DType
from polyc.records import dataclass, replace

Strides = tuple[tuple[int | None, ...] | None, ...]
"""Byte strides of each array of an entry point, in order; None (in one place, or for an array): any."""

ArrayRole = Literal["input", "constant", "output", "inout"]

_C_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false "
    "int32_t int64_t"
).split()
_LIBRARY = (
    "main malloc calloc realloc free memcpy memmove memset bzero fabs fabsf "
    "GOMP_parallel omp_get_thread_num omp_get_num_threads sched_yield llvm"
).split()
_RESERVED = frozenset((*_C_KEYWORDS, *_LIBRARY, *OPERATORS, *(f"{name}f" for name in OPERATORS)))


def make_entry_name(name: str) -> str:
    """The symbol of an operator's entry point: a C identifier that is no keyword and no function compiled code may call."""
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return cleaned if cleaned and not cleaned[0].isdigit() and cleaned not in _RESERVED else f"op_{cleaned}"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array argument.  `shape` over sizes; `lower` is the index of its element 0 (origins of inferred ranges)."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    lower: tuple[Expr, ...]
    role: ArrayRole
    """A constant is what polyc made of bound inputs; it follows the inputs, and no caller passes it."""
    strides: tuple[int | None, ...] | None = None
    """Byte strides the code was specialised for; None (in one place, or for all): any, read from the argument block."""

    @property
    def memory(self) -> ArraySpec:
        """The array as compiled code sees it: complex numbers are pairs along one dimension more."""
        if not self.dtype.is_complex:
            return self
        part = self.dtype.part
        strides = None if self.strides is None else (*self.strides, part.itemsize)
        return replace(self, dtype=part, shape=(*self.shape, int_const(2)), lower=(*self.lower, int_const(0)), strides=strides)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """A precondition on sizes, tested before the kernel runs: `condition` must hold, else `message` (code `code`).

    `message` is a format string over the size symbols: ``"index j runs to {N}, but …"``."""

    condition: Expr
    code: str
    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class RuntimeGuard:
    """A check in the generated code; `message` is a format string over ``value`` and ``bound``.

    With a `box`, lower bounds and extents, the bound is the number of a point of it in row-major order, and the format string
    is also over ``at0``, …: the coordinates of that point."""

    message: str
    span: Span | None = None
    code: str = "bounds-index"
    help: str = "check the index values, or clamp the subscript with min and max"
    box: tuple[tuple[Expr, Expr], ...] = ()

    def point(self, number: int, sizes: Mapping[str, int]) -> dict[str, int]:
        """The point of that number."""
        found: dict[str, int] = {}
        for d, (lower, extent) in reversed(list(enumerate(self.box))):
            number, place = divmod(number, max(1, evaluate(extent, sizes)))
            found[f"at{d}"] = place + evaluate(lower, sizes)
        return found


@dataclass(frozen=True, slots=True)
class Signature:
    name: str
    sizes: tuple[str, ...]
    defined_sizes: tuple[tuple[str, Expr], ...]
    arrays: tuple[ArraySpec, ...]
    host_checks: tuple[HostCheck, ...] = ()
    guards: tuple[RuntimeGuard, ...] = ()
