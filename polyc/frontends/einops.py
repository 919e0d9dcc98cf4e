"""Patterns of einops fitted to a shape, and made a Program.

Splitting and joining dimensions is a reshape without data movement, before and behind the program: the Program has one
dimension for each elementary axis, in the order of the left side for the operands, in that of the right side for the result.  A
list of arrays is one operand each; the first axis then counts them.

The semantics are those of einops 0.8 (Rogozhnikov, "Einops: clear and reliable tensor manipulations with Einstein-like
notation", ICLR 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, Source, Span
from polyc.frontends.einops_patterns import ELLIPSIS, Axis, Group, Pattern, check_lengths, read_pattern
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Size, identity_of, int_const
from polyc.ir.program import Program, RangeClause, Reduction, Return, Role, Statement, Tensor, Where
from polyc.ir.types import BOOL, I64, U64, DType
from polyc.records import dataclass

REDUCTIONS = ("min", "max", "sum", "mean", "prod", "any", "all")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A pattern for one shape.  Axes of length 1 that no name has are left out."""

    lengths: dict[str, int]
    """Length by axis."""
    left: tuple[str, ...]
    """Elementary axes of the operand in order."""
    right: tuple[str, ...]
    """Elementary axes of the result in order."""
    shape: tuple[int, ...]
    """Of the result."""

    @property
    def split_shape(self) -> tuple[int, ...]:
        return tuple(self.lengths[a] for a in self.left)

    @property
    def reduced(self) -> tuple[str, ...]:
        return tuple(a for a in self.left if a not in self.right)


def fit_pattern(pattern: Pattern, shape: Sequence[int], lengths: Mapping[str, int]) -> Fitted:
    """The elementary axes of an array of `shape`, and the shape of the result.  Raises ArgumentError."""
    dimensions = _expand_left(pattern, shape)
    errors: list[Diagnostic] = []
    known: dict[str, int] = {}
    for axis in (*pattern.left_axes.values(), *pattern.right_axes.values()):
        if axis.is_named and axis.name in lengths:
            known[axis.key] = lengths[axis.name]
        elif axis.name.isdigit():
            known[axis.key] = int(axis.name)
    inner: list[str] = []
    for d, (group, extent) in enumerate(zip(dimensions, shape, strict=True)):
        error = _fit_dimension(group, d, extent, known)
        if error is not None:
            errors.append(error)
        inner += [a.key for a in group.axes if a.name != "1"]
    if errors:
        raise ArgumentError(*errors)
    ellipsis = [k for k in inner if k.startswith(ELLIPSIS)]
    right: list[str] = []
    result: list[int] = []
    for group in pattern.right:
        axes = [k for a in group.axes if a.name != "1" for k in (ellipsis if a.name == ELLIPSIS else [a.key])]
        right += axes
        if group.axes and group.axes[0].name == ELLIPSIS and not group.is_composed:
            result += [known[k] for k in axes]
        else:
            result.append(prod(known[k] for k in axes))
    return Fitted({k: known[k] for k in (*inner, *right)}, tuple(inner), tuple(right), tuple(result))


def read_einops(fitted: Fitted, dtype: DType, reduction: str | None = None, n_operands: int | None = None) -> Program:
    """The Program on elementary axes, for any lengths of the axes of the operand.

    `n_operands`: for a list of so many arrays, which the first axis of the left side counts; None for one array.  New axes
    have the lengths of `fitted`.  `reduction` is one of `REDUCTIONS` where axes disappear.
    """
    left = fitted.left if n_operands is None else fitted.left[1:]
    sizes = {axis: Size(f"n_{d}") for d, axis in enumerate(left)}
    names = {axis: f"i{d}" for d, axis in enumerate(dict.fromkeys((*fitted.left, *fitted.right)))}
    maker = _Maker(fitted, names, left, sizes, n_operands, Span(Source(""), 0, 1))
    operands = maker.operands(dtype)
    if fitted.reduced:
        assert reduction in REDUCTIONS
        maker.reduce(dtype, reduction)
    else:
        maker.move(dtype)
    return Program(
        name="einops",
        sizes=tuple(s.name for s in sizes.values()),
        tensors=(*operands, *maker.tensors),
        parameters=tuple(t.name for t in operands),
        returns=(Return("result", "result"),),
        statements=tuple(maker.statements),
    )


def result_type(dtype: DType, reduction: str) -> DType:
    """NumPy's: small integers are summed in 64 bits.  Raises ArgumentTypeError for the mean of integers, as einops does."""
    if reduction in ("any", "all"):
        return BOOL
    if dtype.is_complex and reduction in ("min", "max"):
        message = f"complex numbers have no order, so there is no {reduction}"
        raise ArgumentTypeError(Diagnostic("type-complex", message, None, "reduce abs(z), z.real or z.imag"))
    if dtype.is_complex and reduction not in ("any", "all"):
        return dtype
    if reduction in ("sum", "prod") and not dtype.is_float:
        return U64 if dtype.kind == "u" else I64
    if reduction == "mean" and not dtype.is_float:
        message = f"the mean of {dtype.label} is not defined"
        raise ArgumentTypeError(Diagnostic("argument-type-einops", message, None, "convert the array to a floating point type"))
    return dtype


# --- The shape ---------------------------------------------------------------------------------------------------------


def _expand_left(pattern: Pattern, shape: Sequence[int]) -> list[Group]:
    """One group for each dimension: ``...`` takes what the others leave."""
    n_others = sum(1 for g in pattern.left if g.is_composed or g.axes[0].name != ELLIPSIS)
    has_dots = n_others < len(pattern.left)
    rank = len(shape)
    if rank < n_others or (rank > n_others and not has_dots):
        least = "at least " if has_dots else ""
        message = f"the array has {rank} dimension{'s' * (rank != 1)}, and the left side {least}{n_others}"
        start, end = (pattern.left[0].span.start, pattern.left[-1].span.end) if pattern.left else (0, 1)
        help = f"its shape is {tuple(shape)}: give one name, or one group in parentheses, for each dimension"
        raise ArgumentError(Diagnostic("argument-einops-rank", message, Span(pattern.source, start, end), help))
    dimensions: list[Group] = []
    for group in pattern.left:
        if group.is_composed or group.axes[0].name != ELLIPSIS:
            dimensions.append(group)
        else:
            axes = (Axis(ELLIPSIS, f"{ELLIPSIS}{d}", group.span) for d in range(rank - n_others))
            dimensions += [Group((axis,), group.span) for axis in axes]
    return dimensions


def _fit_dimension(group: Group, d: int, extent: int, known: dict[str, int]) -> Diagnostic | None:
    """Find the length of the one axis of the dimension that has none yet; a diagnostic where it does not fit."""
    what = f"dimension {d} has length {extent}"
    missing = [a for a in group.axes if a.key not in known]
    product = prod(known[a.key] for a in group.axes if a.key in known)
    if len(missing) > 1:
        names = " and ".join(a.name for a in missing)
        help = f"give all lengths but one: {missing[0].name}=2"
        return Diagnostic("argument-einops-axis", f"{what}, which can be split into {names} in many ways", group.span, help)
    if not missing:
        if product == extent:
            return None
        shown = " * ".join(str(known[a.key]) for a in group.axes) or "1"
        message = f"{what}, and its axes {shown}" + (f" = {product}" if len(group.axes) > 1 else "")
        return Diagnostic("argument-einops-size", message, group.span, "check the lengths, and the order of the dimensions")
    if product == 0 or extent % product:
        message = f"{what}, which is not divisible by {product}"
        if product == 0:
            message = f"{what}, and an axis of it has length 0, so that {missing[0].name} can have any length"
        return Diagnostic("argument-einops-size", message, group.span, "check the lengths that are given")
    known[missing[0].key] = extent // product
    return None


# --- The program -------------------------------------------------------------------------------------------------------


class _Maker:
    """Statements and tensors of one program."""

    def __init__(
        self,
        fitted: Fitted,
        names: Mapping[str, str],
        left: tuple[str, ...],
        sizes: Mapping[str, Size],
        n_operands: int | None,
        span: Span,
    ) -> None:
        self.fitted, self.names, self.left, self.sizes, self.n_operands = fitted, names, left, sizes, n_operands
        self.span = span
        self.tensors: list[Tensor] = []
        self.statements: list[Statement] = []

    def operands(self, dtype: DType) -> list[Tensor]:
        shape = tuple(self.sizes[a] for a in self.left)
        names = ["operand"] if self.n_operands is None else [f"operand{n}" for n in range(self.n_operands)]
        return [Tensor(n, dtype, len(shape), shape, "input", n, self.span) for n in names]

    def move(self, dtype: DType) -> None:
        """The result has every element of the operands, once or repeated."""
        self._make("result", dtype, len(self.fitted.right), "output")
        for n in range(self.n_operands or 1):
            self._assign("result", self.fitted.right, self._read_operand(n), n)

    def reduce(self, dtype: DType, reduction: str) -> None:
        """Reduce over the axes that are not in the result; arrays of a list are gathered before."""
        source: Read = self._read_operand(0)
        if self.n_operands is not None:
            self._make("stacked", dtype, len(self.fitted.left), "temporary")
            for n in range(self.n_operands):
                self._assign("stacked", self.fitted.left, self._read_operand(n), n)
            source = Read("stacked", tuple(Index(self.names[a]) for a in self.fitted.left), self.span)
        target = result_type(dtype, reduction)
        if reduction == "mean":
            self._reduce("total", target.computed, "add", _cast(source, dtype, target.computed), "temporary")
            count: Expr = int_const(1)
            for axis in self.fitted.reduced:
                count = Call("mul", (count, self.sizes.get(axis, int_const(self.n_operands or 0))))
            total = Read("total", tuple(Index(self.names[a]) for a in self.fitted.right), self.span)
            mean = Call("truediv", (total, Cast(count, target.computed)), self.span)
            self._make("result", target, len(self.fitted.right), "output")
            self._assign("result", self.fitted.right, _cast(mean, target.computed, target), None)
            return
        value: Expr = _cast(source, dtype, target)
        op = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(reduction, reduction)
        if target == BOOL and dtype != BOOL:
            value = Call("ne", (source, Const(0.0 if dtype.is_float else 0, dtype)), self.span)
        elif target == BOOL and op in ("min", "max"):
            op = "and" if op == "min" else "or"
        self._reduce("result", target, op, value, "output")

    def _make(self, name: str, dtype: DType, rank: int, role: Role) -> None:
        self.tensors.append(Tensor(name, dtype, rank, None, role, name, self.span))

    def _read_operand(self, n: int) -> Read:
        name = "operand" if self.n_operands is None else f"operand{n}"
        return Read(name, tuple(Index(self.names[a]) for a in self.left), self.span)

    def _assign(self, target: str, axes: tuple[str, ...], value: Expr, part: int | None) -> None:
        """``target[axes] = value``; in a list the counting axis stands at `part`."""
        counting = self.fitted.left[0] if self.n_operands is not None and part is not None else None
        subscripts = tuple(int_const(part or 0) if a == counting else Index(self.names[a]) for a in axes)
        new = [a for a in axes if a not in self.fitted.left]
        where: list[Where] = [RangeClause(self.names[a], int_const(0), int_const(self.fitted.lengths[a])) for a in new]
        indices = tuple(self.names[a] for a in axes if a != counting)
        self._add(target, subscripts, indices, value, None, tuple(where))

    def _reduce(self, target: str, dtype: DType, op: str, value: Expr, role: Role) -> None:
        self._make(target, dtype, len(self.fitted.right), role)
        subscripts = tuple(Index(self.names[a]) for a in self.fitted.right)
        indices = tuple(self.names[a] for a in (*self.fitted.right, *self.fitted.reduced))
        self._add(target, subscripts, indices, value, Reduction(op, identity_of(op, dtype)), ())

    def _add(
        self,
        target: str,
        subscripts: tuple[Expr, ...],
        indices: tuple[str, ...],
        value: Expr,
        reduction: Reduction | None,
        where: tuple[Where, ...],
    ) -> None:
        name = f"S{len(self.statements)}"
        self.statements.append(Statement(name, target, subscripts, indices, value, reduction, where, self.span))


def _cast(value: Expr, own: DType, dtype: DType) -> Expr:
    return value if own == dtype else Cast(value, dtype)


__all__ = [
    "REDUCTIONS",
    "Fitted",
    "Pattern",
    "check_lengths",
    "fit_pattern",
    "read_einops",
    "read_pattern",
    "result_type",
]
