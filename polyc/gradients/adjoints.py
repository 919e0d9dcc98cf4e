"""What an expression passes on to the elements it reads, for the cotangent of its value."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from polyc.gradients.rules import CONSTANT, LINEAR, is_differentiable, partials, times
from polyc.ir.expr import Call, Cast, Const, Expr, Pad, Read, Select, all_hold, reads, type_of
from polyc.ir.operators import OPERATORS
from polyc.ir.types import DType
from polyc.poly.extraction import write_out_pad
from polyc.poly.ranges import Interval
from polyc.records import dataclass

Conditions = tuple[tuple[Expr, bool], ...]
"""Of the selections around a read, with the arm that it stands in (True: `then`)."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What is added to the adjoint of the element that `read` reads, at points where the conditions hold."""

    read: Read
    value: Expr
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Scene:
    """`active`: versions whose adjoints are wanted; `types` and `boxes` are those of all versions."""

    active: Collection[str]
    types: Mapping[str, DType]
    boxes: Mapping[str, Sequence[Interval]]

    def contributions(self, expr: Expr, cotangent: Expr, conditions: Conditions = ()) -> Iterator[Contribution]:
        """Those of every read of `expr`, whose value has this cotangent (of the type that its arithmetic is done in)."""
        if not any(read.tensor in self.active for read in reads(expr)):
            return
        match expr:
            case Read():
                if expr.tensor in self.active:
                    yield Contribution(expr, cotangent, conditions)
            case Pad():
                written = write_out_pad(expr, self.boxes[expr.read.tensor], lambda test: False)
                yield from self.contributions(written, cotangent, conditions)
            case Select(condition, then, other):
                yield from self.contributions(then, cotangent, (*conditions, (condition, True)))
                yield from self.contributions(other, cotangent, (*conditions, (condition, False)))
            case Cast(value, dtype):
                if is_differentiable(dtype) and is_differentiable(own := type_of(value, self.types)):
                    yield from self.contributions(value, _convert(cotangent, dtype.computed, own.computed), conditions)
            case Call(op, args):
                if op in CONSTANT or OPERATORS[op].result == "bool":
                    return
                if op in LINEAR:
                    passed: Sequence[Expr | None] = LINEAR[op][1](cotangent, type_of(args[0], self.types).part)
                else:
                    passed = [times(cotangent, partial) for partial in partials(expr, self.types)]
                for operand, part in zip(args, passed, strict=True):
                    if part is not None:
                        yield from self.contributions(operand, part, conditions)


def _convert(cotangent: Expr, source: DType, target: DType) -> Expr:
    """The cotangent of what was converted from `target` to `source`."""
    if source.is_complex and not target.is_complex:
        cotangent, source = Call("real", (cotangent,)), source.part
    return cotangent if source == target else Cast(cotangent, target)


def select(conditions: Conditions, value: Expr, dtype: DType) -> Expr:
    """`value` where the conditions hold, else 0."""
    zero = Const(0.0, dtype)
    positive = [c for c, holds in conditions if holds]
    for condition in (c for c, holds in conditions if not holds):
        value = Select(condition, zero, value)
    return Select(all_hold(positive), value, zero) if positive else value
