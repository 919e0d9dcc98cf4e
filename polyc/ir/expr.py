"""Expressions: one small language for statement values, subscripts, extents and loop bounds.

Expressions are *explicitly typed*: front ends insert `Cast` nodes, so both operands of an arithmetic operator
have the same element type and nothing below the front ends promotes.  `Index` and `Size` are 64-bit integers.
Subscripts, extents and bounds are ``i64`` expressions.  In a `LoopNest` the same nodes are used: `Index` is then
a loop variable, `Size` an integer parameter of the entry point, `Read` a read of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import reduce
from typing import Any, Literal, assert_never

from polyc.diagnostics import Span
from polyc.ir.operators import HOST_OPERATORS, OPERATORS
from polyc.ir.traced import whole
from polyc.ir.types import BOOL, C64, C128, F32, I64, DType
from polyc.records import Hashed, dataclass


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False)  # type: ignore[return-value]


class Operand:
    """Any expression, in Python's arithmetic: ``a + b``, ``2 * i``, ``-a``, ``a // n``, ``a % n``.  Whole numbers become
    ``i64`` constants.  ``==`` stays equality of trees: comparisons are made by `eq`, `lt` and so on."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Call:
        return _call("add", self, other)

    def __radd__(self, other: int) -> Call:
        return _call("add", other, self)

    def __sub__(self, other: Expr | int) -> Call:
        return _call("sub", self, other)

    def __rsub__(self, other: int) -> Call:
        return _call("sub", other, self)

    def __mul__(self, other: Expr | int) -> Call:
        return _call("mul", self, other)

    def __rmul__(self, other: int) -> Call:
        return _call("mul", other, self)

    def __floordiv__(self, other: Expr | int) -> Call:
        return _call("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> Call:
        return _call("floordiv", other, self)

    def __mod__(self, other: Expr | int) -> Call:
        return _call("mod", self, other)

    def __neg__(self) -> Call:
        return Call("neg", (self,))  # type: ignore[arg-type]


class Tree(Operand, Hashed):
    """A node over others: it remembers its hash, its `reads`, and what `simplify` found of it."""

    __slots__ = ("_form", "_reads", "_simple", "_text")
    _reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Const(Operand):
    """A literal of element type `dtype`; infinities and NaN are Python floats.  One of a complex type has no imaginary part."""

    value: int | float | bool
    dtype: DType = I64
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Index(Operand):
    """An iteration index of a statement, or a loop variable in a loop nest."""

    name: str
    span: Span | None = _span()

    def __hash__(self) -> int:
        # Written out, as most of what is looked up by expressions is made of these: the generated one makes a tuple first.
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Size(Operand):
    """A size symbol, or an integer parameter of the entry point in a loop nest."""

    name: str
    span: Span | None = _span()

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Read(Tree):
    """The element of a tensor version (or buffer) at `subscripts`; rank 0 has none."""

    tensor: str
    subscripts: tuple[Expr, ...]
    span: Span | None = _span()


PadMode = Literal["value", "clamp", "wrap", "reflect", "symmetric"]
PAD_MODES: tuple[PadMode, ...] = ("clamp", "wrap", "reflect", "symmetric")
"""Modes that need no value; the tensor must not be empty."""


@dataclass(frozen=True, slots=True)
class Pad(Tree):
    """`read` where all its subscripts are inside the tensor, else `value`, or by `mode` the element that takes its place.

    clamp: the nearest element.  wrap: the tensor repeated.  reflect: mirrored at its first and last element.
    symmetric: mirrored at its edges, so that these elements stand twice."""

    read: Read
    value: Expr
    span: Span | None = _span()
    mode: PadMode = "value"


@dataclass(frozen=True, slots=True)
class Call(Tree):
    """An operator of `OPERATORS` applied to operands of one element type."""

    op: str
    args: tuple[Expr, ...]
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Select(Tree):
    """`then` where `condition` holds, else `other`; the arm not taken is not evaluated (its reads are guarded)."""

    condition: Expr
    then: Expr
    other: Expr
    span: Span | None = _span()


@dataclass(frozen=True, slots=True)
class Cast(Tree):
    """Conversion of element type, as NumPy's `astype` (float to integer truncates towards zero)."""

    value: Expr
    dtype: DType
    span: Span | None = _span()


Expr = Const | Index | Size | Read | Pad | Call | Select | Cast


def int_const(value: int) -> Const:
    return Const(whole(value), I64)


def _call(op: str, a: Any, b: Any) -> Any:
    """A call of two operands, one of which may be a whole number; NotImplemented for anything else."""
    if isinstance(a, Operand) and isinstance(b, Operand):
        return Call(op, (a, b))  # type: ignore[arg-type]
    if isinstance(a, Operand) and isinstance(b, int):
        return Call(op, (a, int_const(b)))  # type: ignore[arg-type]
    if isinstance(b, Operand) and isinstance(a, int):
        return Call(op, (int_const(a), b))  # type: ignore[arg-type]
    return NotImplemented


def minimum(*operands: Expr | int) -> Expr:
    """The least of several operands, one of the first two of which is an expression."""
    return reduce(lambda a, b: _call("min", a, b), operands)  # type: ignore[return-value]


def maximum(*operands: Expr | int) -> Expr:
    return reduce(lambda a, b: _call("max", a, b), operands)  # type: ignore[return-value]


def ceil_div(a: Expr, by: int) -> Call:
    """``a / by``, rounded up."""
    return (a + (by - 1)) // by


def _comparison(op: str) -> Callable[[Expr | int, Expr | int], Call]:
    def compare(a: Expr | int, b: Expr | int) -> Call:
        compared: Call = _call(op, a, b)
        return compared

    return compare


eq, ne, lt, le, gt, ge = map(_comparison, ("eq", "ne", "lt", "le", "gt", "ge"))


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct operands, subscripts included."""
    match expr:
        case Call():
            return expr.args
        case Read():
            return expr.subscripts
        case Const() | Index() | Size():
            return ()
        case Pad():
            return (expr.read, expr.value)
        case Select():
            return (expr.condition, expr.then, expr.other)
        case Cast():
            return (expr.value,)
        case _:
            assert_never(expr)


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same node over other operands."""
    match expr:
        case Const() | Index() | Size():
            return expr
        case Read():
            return Read(expr.tensor, new, expr.span)
        case Pad():
            read, value = new
            assert isinstance(read, Read)
            return Pad(read, value, expr.span, expr.mode)
        case Call():
            return Call(expr.op, new, expr.span)
        case Select():
            return Select(new[0], new[1], new[2], expr.span)
        case Cast():
            return Cast(new[0], expr.dtype, expr.span)
        case _:
            assert_never(expr)


def map_children(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The node over changed operands; the very same node where none of them is another one."""
    old = children(expr)
    new = tuple(map(change, old))
    return expr if all(a is b for a, b in zip(old, new, strict=True)) else with_children(expr, new)


_LEAVES = (Const, Index, Size)


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes, parents before children, left to right."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Call):
            stack.extend(node.args[::-1])
        elif not isinstance(node, _LEAVES):
            stack.extend(children(node)[::-1])


def index_names(*exprs: Expr) -> set[str]:
    """Names of the indices in expressions."""
    return {node.name for expr in exprs for node in walk(expr) if isinstance(node, Index)}


def size_names(*exprs: Expr) -> set[str]:
    """The symbolic sizes in `exprs`."""
    return {node.name for expr in exprs for node in walk(expr) if isinstance(node, Size)}


def mentions(expr: Expr, *names: str) -> bool:
    """Whether one of these indices stands in an expression."""
    return any(isinstance(node, Index) and node.name in names for node in walk(expr))


def rewrite(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up: each node over rewritten children, replaced by `rule(node)` unless that is None."""
    if not isinstance(expr, _LEAVES):
        old = children(expr)
        new = [rewrite(child, rule) for child in old]
        for before, after in zip(old, new, strict=True):
            if before is not after:
                expr = with_children(expr, tuple(new))
                break
    result = rule(expr)
    return expr if result is None else result


def replace_terms(expr: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """Top-down: the outermost of the terms in `new` as what they are there; nothing inside of them is looked at."""
    return new[expr] if expr in new else map_children(expr, lambda e: replace_terms(e, new))


def substitute(expr: Expr, indices: Mapping[str, Expr], sizes: Mapping[str, Expr] | None = None) -> Expr:
    """Replace indices (and size symbols) by expressions."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Index):
            return indices.get(node.name)
        if isinstance(node, Size) and sizes:
            return sizes.get(node.name)
        return None

    return rewrite(expr, rule)


_remember_reads: Callable[[Expr, tuple[Read, ...]], None] = Tree.__dict__["_reads"].__set__


def reads(expr: Expr) -> tuple[Read, ...]:
    """All reads in `expr`, those in subscripts and under `Pad` included, left to right."""
    if isinstance(expr, _LEAVES):
        return ()
    known = getattr(expr, "_reads", None)
    if known is not None:
        return known
    found: list[Read] = []
    stack: list[Expr] = [expr]
    while stack:  # `walk` without what it costs to yield: of all expressions most nodes are no reads
        node = stack.pop()
        if isinstance(node, _LEAVES):
            continue
        known = getattr(node, "_reads", None)
        if known is not None:
            found += known
        elif isinstance(node, Call):
            stack.extend(node.args[::-1])
        else:
            if isinstance(node, Read):
                found.append(node)
            stack.extend(children(node)[::-1])
    result = tuple(found)
    _remember_reads(expr, result)
    return result


def padded_reads(*exprs: Expr) -> list[Read]:
    """Those beyond whose borders there is something else."""
    return [node.read for expr in exprs for node in walk(expr) if isinstance(node, Pad)]


def count_operations(expr: Expr, values: Collection[Expr] = ()) -> int:
    """Different operators that make `expr` of `values` and what it reads; those of subscripts do not count."""
    found: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, (Call, Select, Cast)) and node not in found and node not in values:
            found.add(node)
            stack.extend(children(node))
    return sum(isinstance(node, Call) for node in found)


def type_of(expr: Expr, tensor_types: Mapping[str, DType]) -> DType:
    """Element type of a well-formed expression."""
    match expr:
        case Const():
            return expr.dtype
        case Index() | Size():
            return I64
        case Read():
            return tensor_types[expr.tensor]
        case Pad():
            return tensor_types[expr.read.tensor]
        case Call():
            return BOOL if OPERATORS[expr.op].result == "bool" else result_type(expr.op, type_of(expr.args[0], tensor_types))
        case Select():
            return type_of(expr.then, tensor_types)
        case Cast():
            return expr.dtype
        case _:
            assert_never(expr)


def result_type(op: str, operand: DType) -> DType:
    """Element type of an operator's value for operands of a type."""
    match OPERATORS[op].result:
        case "bool":
            return BOOL
        case "part":
            return operand.part
        case "pair":
            return C64 if operand == F32 else C128
        case _:
            return operand


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Value of an integer expression over sizes and indices; used for extents, strides and checks on the host."""
    match expr:
        case Const():
            return whole(expr.value)
        case Index() | Size():
            return values[expr.name]
        case Select():
            return evaluate(expr.then if evaluate(expr.condition, values) else expr.other, values)
        case Cast():
            return evaluate(expr.value, values)
        case Call():
            a = [evaluate(arg, values) for arg in expr.args]
            return whole(HOST_OPERATORS[expr.op](*a))
        case Read() | Pad():
            raise ValueError("a read has no value on the host")
        case _:
            assert_never(expr)


def operands_of(expr: Expr, op: str) -> list[Expr]:
    """The operands of nested calls of `op`; of anything else itself."""
    if isinstance(expr, Call) and expr.op == op:
        return [operand for arg in expr.args for operand in operands_of(arg, op)]
    return [expr]


def all_hold(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of at least one condition; `operands_of` takes it apart again."""
    return reduce(lambda a, b: Call("and", (a, b)), conditions)


def any_holds(conditions: Iterable[Expr]) -> Expr:
    """The disjunction of at least one condition."""
    return reduce(lambda a, b: Call("or", (a, b)), conditions)


def identity_of(op: str, dtype: DType) -> Const:
    """The identity of the monoid `op` (add, mul, max, min, and, or) on `dtype`."""
    if op == "add":
        return Const(0.0 if dtype.is_float or dtype.is_complex else (False if dtype.kind == "b" else 0), dtype)
    if op == "mul":
        return Const(1.0 if dtype.is_float or dtype.is_complex else (True if dtype.kind == "b" else 1), dtype)
    if op in ("max", "min"):
        if dtype.is_float:
            return Const(float("-inf") if op == "max" else float("inf"), dtype)
        if dtype.kind == "b":
            return Const(op == "min", dtype)
        return Const(dtype.limits[op == "min"], dtype)
    if op in ("and", "or"):
        return Const(op == "and", BOOL)
    raise ValueError(f"no monoid {op!r}")


MONOIDS = ("add", "mul", "max", "min", "and", "or")
"""Reduction operators; `max` and `min` propagate NaN."""
