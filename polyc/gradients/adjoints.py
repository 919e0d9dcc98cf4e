"""What an expression passes on to the elements it reads, for the cotangent of its value."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from polyc.gradients.rules import CONSTANT, LINEAR, is_differentiable, partials, plus, times
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, all_hold, ge, index_names, lt, reads, type_of
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Condition, RangeClause, Statement
from polyc.ir.segments import is_loaded
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
    """`active`: versions whose adjoints are wanted; `types` and `boxes` are those of all versions; `stored`: where values are
    stored."""

    active: Collection[str]
    types: Mapping[str, DType]
    boxes: Mapping[str, Sequence[Interval]]
    stored: Mapping[Expr, Read]

    def contributions(self, expr: Expr, cotangent: Expr, conditions: Conditions = ()) -> Iterator[Contribution]:
        """Those of every read of `expr`, whose value has this cotangent (of the type that its arithmetic is done in).

        Cotangents of an operand that stands in several places are added up before they are passed on, as ever in reverse mode:
        what is passed on does not grow with the number of ways through the expression."""
        found: dict[Expr, dict[Conditions, Expr]] = {expr: {conditions: cotangent}}
        for node in self._users_first(expr):
            for under, value in found.pop(node, {}).items():
                if isinstance(node, Read):
                    yield Contribution(node, value, under)
                for operand, passed, more in self._pass_on(node, value):
                    own = found.setdefault(operand, {})
                    total = plus(own.get((*under, *more)), passed)
                    assert total is not None
                    own[(*under, *more)] = total

    def _users_first(self, expr: Expr) -> list[Expr]:
        """The different nodes that depend on active reads, each behind all that use it."""
        order: dict[Expr, None] = {}
        stack = [(expr, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                order.setdefault(node)
            elif node not in order and any(read.tensor in self.active for read in reads(node)):
                stack.append((node, True))
                stack += [(e, False) for e in self._operands(node)]
        return list(reversed(order))

    def _operands(self, expr: Expr) -> Sequence[Expr]:
        match expr:
            case Pad():
                return (self._written_out(expr),)
            case Select(_, then, other):
                return then, other
            case Cast(value):
                return (value,)
            case Call(_, args):
                return args
        return ()

    def _written_out(self, pad: Pad) -> Expr:
        return write_out_pad(pad, self.boxes[pad.read.tensor], lambda test: False)

    def _pass_on(self, expr: Expr, cotangent: Expr) -> Iterator[tuple[Expr, Expr, Conditions]]:
        """What operands get of the cotangent of a node, and where."""
        match expr:
            case Pad():
                yield self._written_out(expr), cotangent, ()
            case Select(condition, then, other):
                yield then, cotangent, ((condition, True),)
                yield other, cotangent, ((condition, False),)
            case Cast(value, dtype):
                if is_differentiable(dtype) and is_differentiable(own := type_of(value, self.types)):
                    yield value, _convert(cotangent, dtype.computed, own.computed), ()
            case Call(op, args):
                if op in CONSTANT or OPERATORS[op].result == "bool":
                    return
                if op in LINEAR:
                    passed: Sequence[Expr | None] = LINEAR[op][1](cotangent, type_of(args[0], self.types).part)
                elif op == "mul" and args[0] == args[1]:
                    passed = times(cotangent, plus(*args)), None
                else:
                    passed = [times(cotangent, partial) for partial in partials(expr, self.types, self.stored.get(expr))]
                for operand, part in zip(args, passed, strict=True):
                    if part is not None:
                        yield operand, part, ()


def find_stored(s: Statement, types: Mapping[str, DType]) -> dict[Expr, Read]:
    """Where the value of an assignment is stored, and that of each arm it may choose."""
    arms, found = [] if s.reduction is not None or types[s.target].is_storage else [s.value], dict[Expr, Read]()
    for arm in arms:
        if isinstance(arm, Select):
            arms += [arm.then, arm.other]
        found[arm] = Read(s.target, s.subscripts, s.span)
    return found


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


def conditions_of(s: Statement) -> Iterator[Expr]:
    """The conditions of a statement, and the bounds of its ranges that other indices make."""
    for w in s.where:
        if isinstance(w, Condition):
            yield w.condition
        elif isinstance(w, RangeClause):
            if index_names(w.lower) and not is_loaded(w.lower):
                yield ge(Index(w.index), w.lower)
            if index_names(w.upper) and not is_loaded(w.upper):
                yield lt(Index(w.index), w.upper)
