"""What an operator's function writes its comprehension with.

`Builder` makes the statements of one node: `map` for one value per element, `reduce` for a reduction, `recur` for a value
that needs others of its own tensor, `parts` for a tensor written in pieces, `view` for a change of shape that moves nothing.
A `Value` is a tensor of the node: ``x[i, j]`` reads an element as a `Term`.  All extents are numbers.  What a function needs
to know of the *contents* of an input (a shape, axes) it asks `value` for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import prod
from typing import Any, NoReturn

import numpy as np

from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.frontends.onnx.graph import Node, node_span
from polyc.frontends.onnx.registry import Unsupported
from polyc.frontends.onnx.terms import Operand, Term, as_term, call, cast, constant, index
from polyc.ir.expr import Cast, Const, Expr, Index, Pad, PadMode, Read, identity_of, index_names, int_const
from polyc.ir.program import Condition, RangeClause, Reduction, Statement, Tensor, Where
from polyc.ir.traced import has_traced, whole
from polyc.ir.types import I64, DType
from polyc.limits import available_memory
from polyc.records import dataclass

Shape = tuple[int, ...]
Body = Callable[..., Operand]

MAX_LITERAL = 1
"""Elements of a constant that is written into the code instead of being read."""


class NeedsValue(Exception):
    """The contents of the tensor `name` must be known before this node can be compiled."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor.  `known` are its contents, where they are known when the graph is compiled."""

    name: str
    dtype: DType
    shape: Shape
    known: np.ndarray | None = None
    is_literal: bool = False
    """Its contents are the same in every run, and few enough to stand in the code."""
    source: Value | None = None
    """The tensor that this is the same memory as, in another shape."""

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def __getitem__(self, subscripts: Any) -> Term:
        """The element at `subscripts` (terms or numbers, one for each dimension)."""
        given = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        assert len(given) == self.rank, f"{self.name} has rank {self.rank}, {len(given)} subscripts are given"
        if self.is_literal and self.known is not None:
            return constant(self.known.reshape(()).item(), self.dtype)
        if self.source is not None:
            return self.source[reshape_subscripts(given, self.shape, self.source.shape)]
        read: Expr = Read(self.name, tuple(as_term(s, I64).expr for s in given))
        return cast(Term(read, self.dtype), self.dtype.computed)

    def padded(self, subscripts: Sequence[Operand], value: Operand = 0, mode: PadMode = "value") -> Term:
        """The element at `subscripts`, or outside of the tensor `value`, or what `mode` puts in its place (`ir.expr.Pad`)."""
        assert self.source is None, "a view is read inside only"
        read = Read(self.name, tuple(as_term(s, I64).expr for s in subscripts))
        filler = as_term(value, self.dtype)
        if self.dtype.is_storage:  # the read is of the storage type
            number = filler.expr
            if not isinstance(number, Const):
                raise Unsupported(f"a computed padding of {self.dtype.label}")
            return cast(Term(Pad(read, Const(number.value, self.dtype), mode=mode), self.dtype), self.dtype.computed)
        return Term(Pad(read, filler.expr, mode=mode), self.dtype)

    def spread(self, subscripts: Sequence[Operand]) -> Term:
        """The element that stands at `subscripts` of a larger shape that this tensor is broadcast to, as NumPy does it."""
        own = tuple(subscripts)[len(subscripts) - self.rank :]
        return self[tuple(0 if n == 1 else s for s, n in zip(own, self.shape, strict=True))]


def reshape_subscripts(subscripts: Sequence[Operand], shape: Shape, other: Shape) -> tuple[Operand, ...]:
    """Subscripts in `other` of the element at `subscripts` of `shape`, both in row-major order.

    Neighbouring dimensions are taken together only as far as needed, so that a dimension that both have keeps its subscript."""
    if prod(other) == 0:
        return (0,) * len(other)
    result: list[Operand] = []
    a = b = 0
    while a < len(shape) or b < len(other):
        first, second = a, b
        left = right = 1
        while True:
            if left == right and (a > first or b > second):
                break
            if (left <= right and a < len(shape)) or b >= len(other):
                left *= shape[a]
                a += 1
            else:
                right *= other[b]
                b += 1
        result += _regroup(subscripts[first:a], shape[first:a], other[second:b])
    return tuple(result)


def _regroup(subscripts: Sequence[Operand], shape: Shape, other: Shape) -> list[Operand]:
    """`reshape_subscripts` for dimensions that have no prefix in common."""
    position: Operand = 0
    for s, n in zip(subscripts, shape, strict=True):
        if n != 1:
            position = s if isinstance(position, int) and position == 0 else position * n + s
    result: list[Operand] = []
    stride = prod(other)
    for d, n in enumerate(other):
        stride //= max(n, 1)
        if n == 1:
            result.append(0)
            continue
        part = position // stride if stride > 1 else position
        is_first = all(m == 1 for m in other[:d])
        result.append(part if is_first else part % n)
    return result


@dataclass(slots=True)
class Builder:
    """Makes the statements of `node`."""

    node: Node
    statements: list[Statement] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """Arrays that a function made itself (`array`), by tensor."""
    _n_names: int = 0

    # --- What is computed ----------------------------------------------------------------------------------------------

    def map(self, shape: Sequence[int], dtype: DType, body: Body) -> Value:
        """``T[i, j, …] = body(i, j, …)`` for all elements of `shape`."""
        target = self._declare(shape, dtype)
        names = self._indices("i", len(shape))
        self._assign(target, tuple(Index(n) for n in names), names, target.shape, self._body(body, names, dtype), None, ())
        return target

    def reduce(
        self,
        op: str,
        shape: Sequence[int],
        over: Sequence[int],
        dtype: DType,
        body: Body,
        init: Body | None = None,
        where: Body | None = None,
    ) -> Value:
        """``T[i, …] = init(i, …) op body(i, …, r, …) op …`` over all r of the box `over`; `op` is one of `ir.expr.MONOIDS`.

        Without `init` it starts from the identity.  Points for which `where(i, …, r, …)` does not hold are left out: it must
        be affine in the indices."""
        if dtype.is_storage:  # sums are not rounded before they are complete
            wide = self.reduce(op, shape, over, dtype.computed, body, init, where)
            return self.map(shape, dtype, lambda *i: wide[i])
        target = self._declare(shape, dtype)
        left, right = self._indices("i", len(shape)), self._indices("r", len(over))
        start: Expr = self.narrow(Term(identity_of(op, dtype.computed), dtype.computed), dtype)
        if init is not None:
            start = self.narrow(as_term(init(*(index(n) for n in left)), dtype), dtype)
        value = self._body(body, (*left, *right), dtype)
        conditions: tuple[Where, ...] = ()
        if where is not None:
            held = where(*(index(n) for n in (*left, *right)))
            assert isinstance(held, Term)
            conditions = (Condition(held.expr),)
        reduction = Reduction(op, start) if right else None
        if reduction is None and init is not None:
            value = call(op, Term(start, dtype), Term(value, dtype)).expr
        subscripts = tuple(Index(n) for n in left)
        self._assign(target, subscripts, (*left, *right), (*target.shape, *over), value, reduction, conditions)
        return target

    def accumulate(
        self,
        op: str,
        initial: Value,
        over: Sequence[int],
        subscripts: Callable[..., Sequence[Operand]],
        body: Body,
    ) -> Value:
        """`initial`, with ``T[subscripts(r, …)] op= body(r, …)`` for all r of the box `over`: subscripts may depend on data."""
        if initial.dtype.is_storage:  # as in `reduce`
            start = self.map(initial.shape, initial.dtype.computed, lambda *i: initial[i])
            wide = self.accumulate(op, start, over, subscripts, body)
            return self.map(initial.shape, initial.dtype, lambda *i: wide[i])
        target = self._declare(initial.shape, initial.dtype)
        names = self._indices("r", len(over))
        terms = [index(n) for n in names]
        left = tuple(as_term(s, I64).expr for s in subscripts(*terms))
        present = index_names(*left)
        ordered = tuple(n for n in names if n in present) + tuple(n for n in names if n not in present)
        extents = dict(zip(names, over, strict=True))
        value = self._body(body, names, initial.dtype)
        from polyc.ir.program import element_names

        elements = tuple(index(n) for n in element_names(target.name, left))
        first = initial[elements].expr if elements else initial[()].expr
        self._assign(target, left, ordered, tuple(extents[n] for n in ordered), value, Reduction(op, first), ())
        return target

    def recur(self, shape: Sequence[int], dtype: DType, body: Callable[..., Operand]) -> Value:
        """``T[i, …] = body(T, i, …)``, where `body` reads elements of T that come before in some order."""
        target = self._declare(shape, dtype)
        names = self._indices("i", len(shape))
        value = self._body(lambda *i: body(target, *i), names, dtype)
        self._assign(target, tuple(Index(n) for n in names), names, target.shape, value, None, ())
        return target

    def declare(self, shape: Sequence[int], dtype: DType) -> Value:
        """A tensor that is computed by `write`: one that others are computed of, and it of them."""
        return self._declare(shape, dtype)

    def write(self, target: Value, box: Sequence[int], place: Callable[..., Sequence[Operand]], body: Body) -> None:
        """``target[place(i, …)] = body(i, …)`` for all points of `box`; `place` is affine.

        Several writes to one tensor must not overlap, and cover it."""
        if prod(box) == 0 and prod(target.shape) != 0:
            return
        names = self._indices("i", len(box))
        left = tuple(as_term(s, I64).expr for s in place(*(index(n) for n in names)))
        present = index_names(*left)
        used = tuple(n for n in names if n in present)
        assert all(box[names.index(n)] == 1 for n in names if n not in present), "an index of a piece is not on its left side"
        terms = [index(n) if n in present else Term(int_const(0), I64) for n in names]
        value = self.narrow(as_term(body(*terms), target.dtype), target.dtype)
        self._assign(target, left, used, tuple(box[names.index(n)] for n in used), value, None, ())

    def parts(
        self, shape: Sequence[int], dtype: DType, pieces: Sequence[tuple[Sequence[int], Callable[..., Sequence[Operand]], Body]]
    ) -> Value:
        """A tensor in pieces that cover it and do not overlap: for each the box of its indices, where an index is written (an
        affine function), and what is written there."""
        target = self._declare(shape, dtype)
        for box, place, body in pieces:
            self.write(target, box, place, body)
        return target

    # --- What is not computed ------------------------------------------------------------------------------------------

    def view(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` in another shape, with the same elements in the same order; nothing is moved."""
        shape = tuple(whole(n) for n in shape)
        assert prod(shape) == x.size, f"{x.shape} cannot be seen as {shape}"
        base = x if x.source is None else x.source
        known = None if x.known is None else x.known.reshape(shape)
        if base.shape == shape:
            return base
        return Value(self._name(), x.dtype, shape, known, x.is_literal, base)

    def array(self, contents: np.ndarray) -> Value:
        """A constant: a table, say, that a function computes from attributes and shapes."""
        from polyc.ir.types import from_numpy

        dtype = I64 if has_traced(contents) else from_numpy(contents.dtype)
        assert dtype is not None, f"no element type {contents.dtype}"
        contents = np.asarray(contents, order="C")
        name = self._name()
        self.constants[name] = contents
        return Value(name, dtype, contents.shape, contents, contents.size <= MAX_LITERAL)

    def value(self, x: Value) -> np.ndarray:
        """The contents of an input; raises `NeedsValue` where they are not known yet."""
        if x.known is None:
            raise NeedsValue(x.name)
        return x.known

    def integers(self, x: Value) -> tuple[int, ...]:
        """The contents of an input that is a list of integers."""
        self.require_integer(x)
        return tuple(whole(n) for n in self.value(x).reshape(-1))

    def integer(self, x: Value) -> int:
        """The contents of an input that is one integer."""
        if x.size != 1:
            self.refuse(f"one number is expected, not a tensor of shape {x.shape}")
        return whole(self.value(x).reshape(-1)[0])

    def check_size(self, shape: Sequence[int], dtype: DType) -> None:
        """Raise UnsupportedError (``unsupported-onnx-evaluation``) for a result larger than all memory."""
        size = prod(shape) * dtype.itemsize
        if size > available_memory():
            help = "check the scales and sizes that it is given; this process may have less memory"
            self.contradict(f"a result of shape {tuple(shape)} takes {size / 2**30:.1f} GiB", help)

    def contradict(self, reason: str, help: str = "check the shapes, types and attributes of the node") -> NoReturn:
        """Say that nothing computes this node (``unsupported-onnx-evaluation``), whatever the reference makes of it."""
        message = f"{self.node.label} cannot be computed: {reason}"
        raise UnsupportedError(Diagnostic("unsupported-onnx-evaluation", message, node_span(self.node), help))

    def refuse(self, reason: str) -> NoReturn:
        """Say that this node is not covered: it is computed by the reference implementation then."""
        raise Unsupported(reason)

    def check_vector(self, x: Value | None, extent: int, what: str) -> None:
        """Contradict the node where `x` is given and is no vector of `extent` elements."""
        if x is not None and x.shape != (extent,):
            self.contradict(f"{what} of shape {x.shape} for {extent} channels")

    def require_float(self, *values: Value) -> None:
        """Refuse what is not floating point."""
        for v in values:
            if not v.dtype.is_float:
                self.refuse(f"element type {v.dtype.label}")

    def require_integer(self, x: Value) -> None:
        """Contradict the node where `x`, which are positions or extents, may hold other numbers than whole ones."""
        if not x.dtype.is_integer:
            self.contradict(f"{x.name} of type {x.dtype.label} where integers are expected")

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from 0; one outside of the rank contradicts the node."""
        if not -rank <= axis < rank:
            reason = f"axis {axis} of a tensor of rank {rank}"
            if rank == 0:  # operators differ in what they make of a scalar
                self.refuse(reason)
            self.contradict(reason)
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """Axes counted from 0, ascending; None: all."""
        if axes is None:
            return tuple(range(rank))
        return tuple(sorted(self.distinct_axes(axes, rank)))

    def distinct_axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from 0, in the order given; one that is given twice contradicts the node."""
        found = [self.axis(int(a), rank) for a in axes]
        if len(set(found)) != len(found):
            self.contradict(f"axes {tuple(axes)} name one axis twice")
        return found

    def broadcast(self, *shapes: Shape) -> Shape:
        """NumPy's common shape; refuses shapes that have none."""
        result: list[int] = []
        for d in range(max(map(len, shapes), default=0), 0, -1):
            extents = [s[-d] for s in shapes if len(s) >= d]
            extent = next((n for n in extents if n != 1), 1)
            if any(n not in (1, extent) for n in extents):
                self.refuse(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
            result.append(extent)
        return tuple(result)

    # --- Statements ----------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        """A name for a tensor of this node that no other value of the graph has."""
        self._n_names += 1
        first = next((o for o in self.node.outputs if o), self.node.op)
        return f"{first}/{self._n_names}"

    def _declare(self, shape: Sequence[int], dtype: DType) -> Value:
        name = self._name()
        extents = tuple(whole(n) for n in shape)
        assert all(n >= 0 for n in extents), f"negative extent in {extents}"
        self.tensors.append(Tensor(name, dtype, len(extents), tuple(int_const(n) for n in extents), "temporary", name))
        return Value(name, dtype, extents)

    @staticmethod
    def _indices(prefix: str, count: int) -> tuple[str, ...]:
        return tuple(f"{prefix}{d}" for d in range(count))

    def _body(self, body: Body, names: Sequence[str], dtype: DType) -> Expr:
        return self.narrow(as_term(body(*(index(n) for n in names)), dtype), dtype)

    @staticmethod
    def narrow(term: Term, dtype: DType) -> Expr:
        """The expression of a term that is stored as `dtype`."""
        if term.dtype != dtype.computed:
            raise TypeError(f"a value of type {term.dtype} is stored to {dtype}")
        return Cast(term.expr, dtype) if dtype.is_storage else term.expr

    def _assign(
        self,
        target: Value,
        subscripts: tuple[Expr, ...],
        names: tuple[str, ...],
        extents: Sequence[int],
        value: Expr,
        reduction: Reduction | None,
        conditions: tuple[Where, ...],
    ) -> None:
        ranges = tuple(RangeClause(n, int_const(0), int_const(e)) for n, e in zip(names, extents, strict=True))
        name = f"{target.name}:{len(self.statements)}"
        self.statements.append(Statement(name, target.name, subscripts, names, value, reduction, (*ranges, *conditions)))


__all__ = ["Builder", "NeedsValue", "Value", "reshape_subscripts"]
