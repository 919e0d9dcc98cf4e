"""What the walker over a loop nest carries: the state of the function being written and the context of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field

from polyc.codegen.emission.linear import (
    Binding,
    Cycle,
    Linear,
    add_expression,
    add_terms,
    are_apart,
    as_linear,
    find_cycles,
    multiply_linear,
    parameters_as_linear,
)
from polyc.codegen.writer.builder import Block, Function, Module, Val
from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const, operands_of
from polyc.ir.loops import Buffer, Loop, LoopNest, Update
from polyc.ir.types import DType
from polyc.machine import Machine
from polyc.records import dataclass, replace

WORKSPACES = ("shared", "thread")
"""Spaces of buffers in the workspace: behind each element there is memory for the rest of a vector."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition under which the code at hand runs.

    `condition` is an expression over the variables of the context, or a value where it reads memory.  `variable`: the
    unrolled or vector loop variable whose bound this is; an access that does not depend on it is made by the loop's first
    iteration too, so for such an access the condition is taken at `first` (None: that iteration is known to run).
    `branched`: control flow sees to it already; only code moved out of the branch (register accumulators) needs it.
    """

    condition: Expr | Val
    variable: str | None = None
    first: Expr | None = None
    branched: bool = False
    source: Expr | None = None
    """Where `condition` is a value: the expression that it is the value of, if that is all there is to it."""


@dataclass(frozen=True, slots=True)
class Context:
    """Bindings of loop variables (outermost first), the vector loop around (its variable, lanes, copy), predicates."""

    env: Mapping[str, Binding] = field(default_factory=dict)
    lane: str | None = None
    lanes: int = 1
    copy: int = 0
    chain: str | None = None
    """The variable of a loop around that is taken several single values at a time, of which this is number `copy`: its sums are
    as many, too."""
    predicates: tuple[Predicate, ...] = ()
    has_loose_lanes: bool = False
    """Lanes beyond the bound may hold anything: what they compute is dropped."""
    overread: frozenset[str] = frozenset()
    """Variables of vector loops whose lanes beyond the bound may load what they would load inside (`overreads`)."""
    is_moved: bool = False
    """In a vector that was moved back to end with its loop, or is narrower: it does not lie where the others do."""
    is_remainder: bool = False
    """In the scalar rest of a vector loop: loops inside run as they did under the vectors, one by one."""
    n_vectors: int = 1
    """Vectors of the loop around: what is the same in all lanes is computed once for all of them."""
    ahead: tuple[Expr, ...] = ()
    """What is at least 1: how far the loops around are from their ends, ``M - c0``, and the ends of those that begin at 0."""
    clamped: Mapping[str, Expr] = field(default_factory=dict)
    """Variables of unrolled copies that may lie beyond the end of their loop, and a position that does not: what such a copy
    computes is dropped, so that it may compute the last one's again, without conditions."""
    exact: Mapping[str, Binding] | None = None
    """Where variables are clamped in `env`: what they are without that."""
    taps: Mapping[str, range] = field(default_factory=dict)
    """Variables of loops around whose copies are written one behind the other, every one of them, and their values."""

    divisors: Mapping[str, int] = field(default_factory=dict)
    """Numbers that the values of loop variables (in a vector: of lane 0) are multiples of."""

    def bind(self, name: str, value: Binding) -> Context:
        return replace(self, env={**self.env, name: value})

    def inside(self, loop: Loop, value: Binding) -> Context:
        """In an iteration of a loop, whose variable has this value."""
        ends = operands_of(loop.upper, "min")
        ahead = [end - Index(loop.var) for end in ends]
        if loop.lower == int_const(0):
            ahead += [end for end in ends if isinstance(end, Call)]
        return replace(self.bind(loop.var, value), ahead=(*self.ahead, *ahead))

    def bind_lanes(self, name: str, base: Binding, lanes: int, copy: int = 0) -> Context:
        if lanes == 1:
            return replace(self.bind(name, base), copy=copy, chain=name)
        return replace(self, env={**self.env, name: base}, lane=name, lanes=lanes, copy=copy)

    def under(self, *predicates: Predicate) -> Context:
        return replace(self, predicates=self.predicates + predicates)

    def for_values(self) -> Context:
        """Where values are computed that only a store or an update under the predicates of this context uses."""
        if not self.clamped or self.exact is not None:
            return self
        predicates = tuple(p for p in self.predicates if p.variable not in self.clamped)
        return replace(self, env={**self.env, **self.clamped}, exact=self.env, predicates=predicates)

    def copies(self, name: str, values: range) -> Context:
        """In the copies of a loop, one of which each of these values of its variable has."""
        return replace(self, taps={**self.taps, name: values})

    def multiple(self, name: str, divisor: int) -> Context:
        """Where the values of a variable are multiples of `divisor`."""
        return replace(self, divisors={**self.divisors, name: divisor})

    def branched(self) -> Context:
        return replace(self, predicates=tuple(replace(p, branched=True) for p in self.predicates))


Key = tuple[str, frozenset[tuple[tuple[Expr, ...], int]], tuple[Expr | Val, ...]]
"""Buffer, byte offset, and the conditions of the branches on the way: exclusive branches have elements of their own."""


@dataclass(slots=True)
class Unordered:
    """Which lanes have seen a NaN: in a slot of integers, all bits of those lanes; in one of a mask, theirs."""

    slot: Val
    block: Block | None = None
    """Where the last test was made."""
    before: Val | None = None
    """What the slot held when that block began."""
    tests: Val | None = None
    """The lanes that the tests of that block have found."""


@dataclass(slots=True)
class Element:
    """One target of updates inside a frame: an element, or a vector of them; `parts` are its partial results."""

    update: Update
    context: Context
    direct: Val | None = None
    """Slot that starts from memory."""
    parts: dict[tuple[str, int, int], tuple[Val, int]] = field(default_factory=dict)
    """Vector slots (and lanes) that start from the identity, by lane variable and interleaved copy."""
    ordered: Val | None = None
    """Slot beside `direct` that says of maxima and minima whether all values were numbers; `direct` then passes NaN by."""
    unordered: dict[int, Unordered] = field(default_factory=dict)
    """The same beside `parts`, by their lanes."""


@dataclass(slots=True)
class Frame:
    """A loop that holds buffers: its context, its preheader with the scopes open there, and its elements by key."""

    context: Context
    preheader: Block
    scopes: list[dict[str, Val]]
    buffers: frozenset[str]
    initial: Mapping[str, Expr] = field(default_factory=dict)
    """Values that accumulators start from instead of memory."""
    elements: dict[Key, Element] = field(default_factory=dict)
    n_vectors: int | None = None
    """Vectors of accumulators; None where that is not known."""
    is_segment: bool = False
    """Whether the loop runs between loaded ends, often a few times only."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the code of one thread knows of the pipeline it is in."""

    stream: str
    places: Val
    """The number of the next column that nobody has, then by place a column's number and how far it is."""
    count: Val
    """Stack slot: columns seen."""
    own: Val
    """Stack slot: the column to run next."""


@dataclass(slots=True)
class State:
    """The function being written and what its names stand for."""

    nest: LoopNest
    target: Machine
    module: Module
    fn: Function
    params: dict[str, Val]
    buffers: dict[str, Val]
    """Base addresses; those of register buffers are stack slots, made when first used."""
    hidden: dict[str, Val]
    """``error``, ``threads`` and ``per_thread`` (bytes of the thread buffers of one thread)."""
    types: dict[str, DType]
    by_name: dict[str, Buffer]
    evaluator: Callable[[State, Context, Expr], Val]
    """`expressions.eval_expr`: subscripts and conditions, which it evaluates, hold expressions themselves."""
    streamed: frozenset[str] = frozenset()
    """Results that lines are streamed of."""
    in_parallel: bool = False
    columns: Columns | None = None
    """Those of the pipeline that the function is part of."""
    epochs: dict[str, int] = field(default_factory=dict)
    """Per buffer a number that grows: equal loads of one epoch are one load."""
    stores: dict[str, Counter[frozenset[Cycle]]] = field(default_factory=dict)
    """Per buffer the stores of this epoch, by the steps of windows that they are to."""
    held: dict[str, Frame] = field(default_factory=dict)
    """Buffers whose updates go to register accumulators, with the frame of the loop that holds them."""
    blocks: dict[Read, tuple[str, list[Val]]] = field(default_factory=dict)
    """Reads that were made for all copies of an unrolled loop at once: its variable, and the value in each copy."""
    memo: list[dict[Read, Val]] = field(default_factory=lambda: [{}])
    divisors: Mapping[Expr, tuple[Val, Val, Val]] = field(default_factory=dict)
    """What loops of any length around divide by, and the parts that dividends are multiplied by instead (`quotients`)."""
    certain: frozenset[Read] = frozenset()
    parts_of_lines: list[tuple[DType, Val, Val]] | None = None
    """Streamed stores (type, pointer, value) of a vector that is a part of lines: they wait for the other parts."""
    row_ends: list[tuple[Val, DType, Val, Val]] | None = None
    """Vectors of which only first lanes are stored (how many, type, pointer, value): they wait for those of other rows."""
    statement_context: Context = field(default_factory=Context)
    functions: dict[str, int] = field(default_factory=dict)
    """Counters for the names of outlined functions."""

    def evaluate(self, ctx: Context, expr: Expr) -> Val:
        """The value of `expr`: one lane, or `ctx.lanes`."""
        return self.evaluator(self, ctx, expr)

    def epoch(self, ctx: Context, buffer: str, subscripts: tuple[Expr, ...]) -> str:
        """What changes with every store that may be to the element: equal loads of one epoch are one load."""
        stores = self.stores.get(buffer)
        n = 0
        if stores:
            cycles = find_cycles(subscripts, ctx.env, ctx.lane)
            n = sum(count for stored, count in stores.items() if not are_apart(stored, cycles))
        return f"; {self.epochs.get(buffer, 0)}.{n}"

    def invalidate(self, ctx: Context, buffer: str, subscripts: tuple[Expr, ...]) -> None:
        """A store to an element of `buffer`: what was loaded from it, or from memory it may share, is not to be used again."""
        self.stores.setdefault(buffer, Counter())[find_cycles(subscripts, ctx.env, ctx.lane)] += 1
        for name in self.by_name[buffer].may_alias:
            self._begin_epoch(name)

    def invalidate_all(self) -> None:
        for name in self.by_name:
            self._begin_epoch(name)

    def _begin_epoch(self, buffer: str) -> None:
        self.epochs[buffer] = self.epochs.get(buffer, 0) + 1
        self.stores.pop(buffer, None)


def byte_offset(ctx: Context, buffer: Buffer, subscripts: tuple[Expr, ...]) -> Linear:
    """Bytes from the beginning of `buffer` to an element."""
    total: Linear = {}
    for subscript, stride in zip(subscripts, buffer.strides, strict=True):
        if isinstance(stride, Const):
            if stride.value:
                add_expression(total, subscript, ctx.env, ctx.lane, int(stride.value))
        else:
            add_terms(total, multiply_linear(as_linear(subscript, ctx.env, ctx.lane), parameters_as_linear(stride)))
    return total
