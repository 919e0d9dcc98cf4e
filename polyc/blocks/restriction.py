"""The program of a class of blocks: the statements of an operator over the boxes of a block, on the regions of its inputs.

Coordinates are at first those of the whole operator, so that subscripts, conditions and values that speak of indices need no
change: ranges begin where the block's do, and reads of an input are counted from where its region begins.  Padded reads keep
their meaning, as a region ends before the tensor only where nothing beyond it is read (`poly.block_model.write_out_borders`).
Where then nothing depends on where a block lies, everything is counted from 0: all blocks of one shape have the same arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Pad,
    Read,
    ge,
    identity_of,
    index_names,
    int_const,
    lt,
    map_children,
    rewrite,
    size_names,
    substitute,
)
from polyc.ir.program import (
    Condition,
    Program,
    RangeClause,
    Statement,
    Tensor,
    find_sizes,
    integer_parameters,
    map_statement,
)
from polyc.ir.simplify import simplify
from polyc.ir.types import I64
from polyc.poly.block_model import BlockModel
from polyc.poly.block_regions import BlockClass
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval
from polyc.records import replace


@dataclass(frozen=True)
class BlockProgram:
    """`program` makes the boxes of its results of its parameters: regions of `inputs`, and the numbers `sizes`, for which all
    `checks` have to hold."""

    program: Program
    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    checks: tuple[Expr, ...]


class RangeMismatch(Exception):
    """The program of a class makes something else of a result's dimension than its blocks."""


def restrict_program(model: BlockModel, found: BlockClass, n_summed: int = 0) -> BlockProgram:
    """The program of a class, with the first `n_summed` dimensions of its result combined.

    Raises `RangeMismatch`, or what `infer_ranges` raises, where it cannot be shown that a block gets what it needs."""
    whole = model.program
    numbers = integer_parameters(whole)
    statements = tuple(_restrict(model, found, s) for s in whole.statements if s.name in found.statements)
    tensors: list[Tensor] = []
    for t in whole.tensors:
        if t.name in numbers:
            tensors.append(t)
        elif t.name in found.tensors:
            tensors.append(replace(t, shape=_declared_shape(whole, t, found, n_summed)))
    program = replace(whole, tensors=tuple(tensors), statements=statements, rules=())
    for result in model.results if n_summed else ():
        program = sum_out(program, result, n_summed)
    lows: dict[str, list[Expr]] = {}
    for name in found.tensors.keys() - set(whole.parameters):
        first = [simplify(w.lower + b.lower) for w, b in zip(model.ranges.tensors[name], found.tensors[name], strict=True)]
        lows[name] = first[n_summed:] if name in model.results else first
    moved = _count_from_zero(program, lows)
    if moved is not None and find_sizes(moved.statements, ()) < find_sizes(program.statements, ()):
        program, lows = moved, {t: [int_const(0)] * len(low) for t, low in lows.items()}
    used = find_sizes(program.statements, program.tensors)
    defined = tuple((name, e) for name, e in whole.defined_sizes if name in used)
    used |= size_names(*(e for _, e in defined))
    blocks = [n for a in model.axes if a is not None for n in (a.first, a.count)]
    names = dict.fromkeys((*whole.sizes, *blocks, *model.sizes.parameters))
    sizes = tuple(n for n in names if n in used or n in numbers)
    given = tuple(n for n in sizes if n not in numbers)
    inputs = tuple(p for p in whole.parameters if p in found.tensors or p in numbers)
    program = replace(
        program,
        sizes=sizes,
        tensors=(*(Tensor(n, I64, 0, (), "input", n) for n in given), *program.tensors),
        parameters=(*inputs, *given),
        defined_sizes=defined,
    )
    ranges = infer_ranges(program)
    for result in model.results:
        dimensions = zip(ranges.tensors[result], lows[result], found.tensors[result][n_summed:], strict=True)
        if not all(_is_planned(model, found, own, low, box.extent) for own, low, box in dimensions):
            raise RangeMismatch(result)
    return BlockProgram(program, inputs, given, tuple(c.condition for c in ranges.checks))


def _declared_shape(program: Program, t: Tensor, found: BlockClass, n_summed: int) -> tuple[Expr, ...] | None:
    """Extents of an input's region; of another tensor those of its box, where they were declared and it begins at 0."""
    box = found.tensors[t.name]
    if t.name in program.parameters:
        return tuple(i.extent for i in box)
    kept = box[n_summed:] if any(r.version == t.name for r in program.returns) else box
    is_declared = t.shape is not None and all(i.lower == int_const(0) for i in kept)
    return tuple(i.extent for i in kept) if is_declared else None


def _is_planned(model: BlockModel, found: BlockClass, own: Interval, low: Expr, extent: Expr) -> bool:
    """Whether a result's dimension is the one that was planned, for all blocks of the class."""
    value = model.value
    same = value(own.lower).eq_set(value(low)).intersect(value(own.extent).eq_set(value(extent)))
    return bool(found.context.is_subset(same))


def _count_from_zero(program: Program, lows: Mapping[str, Sequence[Expr]]) -> Program | None:
    """The program with indices and tensors, but for inputs, counted from 0; `lows` are the first positions of these tensors.

    None where initial values may speak of elements, or ranges of what there is."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        starts = lows.get(node.tensor, [int_const(0)] * len(node.subscripts))
        return replace(node, subscripts=tuple(simplify(_minus(e, low)) for e, low in zip(node.subscripts, starts, strict=True)))

    statements: list[Statement] = []
    for s in program.statements:
        ranges = {w.index: w for w in s.where if isinstance(w, RangeClause)}
        if s.reduction is not None and not isinstance(s.reduction.init, Const):
            return None
        if set(ranges) != set(s.indices) or any(not isinstance(w, (RangeClause, Condition)) for w in s.where):
            return None
        starts = {i: w.lower for i, w in ranges.items()}
        starts |= {e.name: low for e, low in zip(s.subscripts, lows[s.target], strict=True) if isinstance(e, Index)}
        place = {i: simplify(Index(i) + low) for i, low in starts.items()}
        moved = map_statement(map_statement(s, partial(substitute, indices=place)), partial(rewrite, rule=rule))
        where = tuple(
            RangeClause(w.index, simplify(w.lower - starts[w.index]), simplify(w.upper - starts[w.index]), w.span)
            if isinstance(w, RangeClause)
            else w
            for w in moved.where
        )
        subscripts = tuple(_minus(e, low) for e, low in zip(moved.subscripts, lows[s.target], strict=True))
        statements.append(replace(moved, subscripts=subscripts, where=where))
    return replace(program, statements=tuple(statements))


def _restrict(model: BlockModel, found: BlockClass, s: Statement) -> Statement:
    own, boxes = model.ranges.statements[s.name].indices, found.statements[s.name]
    clauses: list[RangeClause | Condition] = []
    for i in s.indices:
        box = boxes[i] or Interval(int_const(0), int_const(0))
        lower = simplify(own[i].lower + box.lower)
        clauses.append(RangeClause(i, lower, simplify(lower + box.extent), s.span))
    for clause in s.where:
        if isinstance(clause, Condition):
            clauses.append(clause)
        elif isinstance(clause, RangeClause) and index_names(*clause.expressions):
            clauses.append(Condition(ge(Index(clause.index), clause.lower), clause.span))
            clauses.append(Condition(lt(Index(clause.index), clause.upper), clause.span))
    if s.reduction is None:  # of elements that are computed, those of the block
        for subscript, interval, box in zip(s.subscripts, model.ranges.tensors[s.target], found.tensors[s.target], strict=True):
            if not isinstance(subscript, (Index, Const)) and interval != box:
                low = simplify(interval.lower + box.lower)
                clauses.append(Condition(ge(subscript, low), s.span))
                clauses.append(Condition(lt(subscript, simplify(low + box.extent)), s.span))
    return map_statement(replace(s, where=tuple(clauses)), lambda e: _on_regions(e, model, found))


def _on_regions(expr: Expr, model: BlockModel, found: BlockClass) -> Expr:
    """Reads of inputs counted from where their regions begin; what nothing is needed of is not read."""
    program = model.program
    known = {*found.tensors, *integer_parameters(program)}

    def change(node: Expr) -> Expr:
        if isinstance(node, Pad) and node.read.tensor not in known:
            return change(node.value)
        if isinstance(node, Read):
            if node.tensor not in known:
                return identity_of("add", program.types[node.tensor])
            if node.tensor in program.parameters and node.subscripts:
                subscripts = zip(map(change, node.subscripts), found.tensors[node.tensor], strict=True)
                return replace(node, subscripts=tuple(_minus(e, i.lower) for e, i in subscripts))
        return map_children(node, change)

    return change(expr)


def _minus(a: Expr, b: Expr) -> Expr:
    return a if b == int_const(0) else simplify(a - b)


def sum_out(program: Program, partial: str, n_cut: int) -> Program:
    """The program of a block with the first dimensions of its result `partial` combined, by the statement's own monoid.

    Reads of it are of what is combined; the sum of a number is that number times their count."""

    def rule(e: Expr) -> Expr | None:
        return replace(e, subscripts=e.subscripts[n_cut:]) if isinstance(e, Read) and e.tensor == partial else None

    tensors = tuple(replace(t, rank=t.rank - n_cut) if t.name == partial else t for t in program.tensors)
    statements = []
    for s in program.statements:
        if s.target == partial:
            order = (*(i for i in s.indices if Index(i) not in s.subscripts[:n_cut]), *_names(s.subscripts[:n_cut]))
            s = _multiply_out(replace(s, subscripts=s.subscripts[n_cut:], indices=order))
        statements.append(map_statement(s, lambda e: rewrite(e, rule)))
    return replace(program, tensors=tensors, statements=tuple(statements))


def _multiply_out(s: Statement) -> Statement:
    """A sum of a literal over a box as what it comes to."""
    ranges = {w.index: w for w in s.where if isinstance(w, RangeClause)}
    if s.reduction is None or s.reduction.op != "add" or not isinstance(s.value, Const) or len(ranges) < len(s.where):
        return s
    if s.value.dtype != I64 or s.reduction.init != int_const(0) or not s.has_plain_left:
        return s
    value: Expr = s.value
    for i in s.reduction_indices:
        value = value * (ranges[i].upper - ranges[i].lower)
    where = tuple(ranges[i] for i in s.left_indices)
    return replace(s, indices=s.left_indices, value=simplify(value), reduction=None, where=where)


def _names(subscripts: Sequence[Expr]) -> list[str]:
    return [e.name for e in subscripts if isinstance(e, Index)]
