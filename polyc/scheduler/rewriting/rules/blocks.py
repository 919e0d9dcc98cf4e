"""What the rules share that sum in blocks: a statement over one block of an index, and its tensor with a dimension for blocks.

They are about a reduction, the *leader*, whose result shifts what others sum: a maximum under exponentials, a mean under
squares.  Each block is shifted by its own result, and the sums of the blocks are corrected when they are combined.

before  ``O[i, k] = f(X[i, k])``                    over T values of k
after   ``O.block[c, i, t] = f(X[i, c*B + t])``     over blocks c of B values, ``c*B + t < T``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    ceil_div,
    evaluate,
    ge,
    identity_of,
    int_const,
    lt,
    mentions,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Reduction, Statement, Tensor, all_reads
from polyc.ir.simplify import simplify, simplify_int
from polyc.ir.types import DType
from polyc.poly.domains import box_domain, map_domain, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks of `size` values of an index that runs over `interval`; `block` and `inner` are the indices that take its place.

    In the tensors of blocks `block` is dimension number `position`."""

    block: str
    inner: str
    size: int
    interval: Interval
    position: int

    def with_block(self, indices: Sequence[str]) -> tuple[str, ...]:
        """Left indices with `block` at its place."""
        return (*indices[: self.position], self.block, *indices[self.position :])

    def element(self, subscripts: Sequence[Expr], index: str) -> tuple[Expr, ...]:
        """Subscripts of a tensor of blocks, from those of the whole tensor, at the point of `index` there."""
        inside = [Index(self.inner) if e == Index(index) else e for e in subscripts]
        return (*inside[: self.position], Index(self.block), *inside[self.position :])

    @property
    def blocks(self) -> Interval:
        count = ceil_div(self.interval.extent, self.size)
        return Interval(int_const(0), simplify_int(count))

    @property
    def point(self) -> Expr:
        """The value of the index in terms of `block` and `inner`."""
        inside = Index(self.block) * self.size + Index(self.inner)
        return simplify_int(inside + self.interval.lower)


def make_cut(index: str, size: int, interval: Interval, position: int) -> Cut:
    return Cut(f"{index}.block", f"{index}.in", size, interval, position)


@dataclass(slots=True)
class Edit:
    """A program being rewritten: statements in order, with the ranges and tensors that are added."""

    program: Program
    ranges: Ranges
    statements: list[Statement]
    tensors: list[Tensor]
    own: dict[str, StatementRanges]
    intervals: dict[str, tuple[Interval, ...]]

    def finish(self) -> tuple[Program, Ranges]:
        """The rewritten program, each statement behind those it reads, without temporaries that nothing writes any more."""
        self.statements = _sort(self.statements)
        written = {s.target for s in self.statements}
        tensors = tuple(t for t in self.tensors if t.role != "temporary" or t.name in written)
        names, kept = {t.name for t in tensors}, {s.name for s in self.statements}
        program = replace(self.program, statements=tuple(self.statements), tensors=tensors)
        own = {n: r for n, r in self.own.items() if n in kept}
        return program, replace(self.ranges, statements=own, tensors={n: i for n, i in self.intervals.items() if n in names})

    def add_tensor(self, name: str, like: Tensor, intervals: tuple[Interval, ...]) -> None:
        self.tensors.append(Tensor(name, like.dtype, len(intervals), None, "temporary", f"{like.base}.block", like.span))
        self.intervals[name] = intervals

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def define(
        self,
        s: Statement,
        suffix: str,
        left: Sequence[str],
        value: Expr,
        summed: Sequence[str] = (),
        reduction: Reduction | None = None,
        intervals: Mapping[str, Interval] | None = None,
        dtype: DType | None = None,
    ) -> Statement:
        """``{s.target}.{suffix}[left] = value``, or the `reduction` over `summed`: a temporary that `s` may read, by default of
        the type of its target.

        Over the box of `intervals`; where there are none, over the points of `s`."""
        name, indices = f"{s.name}_{suffix}", (*left, *summed)
        known = self.own[s.name].indices if intervals is None else intervals
        target = self.add_temporary(s, suffix, [known[i] for i in left], dtype)
        self.set_ranges(name, indices, known, s if intervals is None else None)
        return Statement(name, target, tuple(map(Index, left)), indices, value, reduction, (), s.span)

    def add_temporary(self, s: Statement, suffix: str, intervals: Sequence[Interval], dtype: DType | None = None) -> str:
        """A temporary beside what `s` writes."""
        like, name = self.tensor(s.target), f"{s.target}.{suffix}"
        base = f"{like.base}.{suffix}"
        self.tensors.append(Tensor(name, dtype or like.dtype, len(intervals), None, "temporary", base, s.span))
        self.intervals[name] = tuple(intervals)
        return name

    def set_ranges(
        self, name: str, indices: Sequence[str], intervals: Mapping[str, Interval], within: Statement | None = None
    ) -> None:
        """Those of a statement over the box of intervals, or over the points of the indices that another one has."""
        own = {i: intervals[i] for i in indices}
        if within is None:
            domain = box_domain(name, indices, own, self.ranges.parameters)
        else:
            domain = project_domain(self.own[within.name].domain, within.indices, name, indices)
        self.own[name] = StatementRanges(own, domain)

    def cut(self, s: Statement, index: str, cut: Cut, target: str, value: Expr) -> Statement:
        """`s` over blocks of `index`, into a new tensor of that name, its indices those of the left side and the block.

        `value` is over the indices of `s`, and over those of the cut where it reads what has been cut already."""
        name, own = f"{s.name}_block", self.own[s.name]
        left = cut.with_block([cut.inner if i == index else i for i in s.element_names])
        indices = (*left, *(cut.inner if i == index else i for i in s.reduction_indices))
        place: dict[str, Expr] = {index: cut.point}
        bounds = [ge(Index(cut.inner), 0), lt(Index(cut.inner), cut.size)]
        values = [place.get(i, Index(i)) for i in s.indices]
        intervals = {i: own.indices[i] for i in s.indices if i != index}
        intervals |= {cut.block: cut.blocks, cut.inner: Interval(int_const(0), int_const(cut.size))}
        like = self.program.tensor(s.target)
        self.add_tensor(target, like, tuple(intervals[i] for i in left))
        reduction = s.reduction and Reduction(s.reduction.op, identity_of(s.reduction.op, like.dtype))
        new = Statement(name, target, tuple(map(Index, left)), indices, substitute(value, place), reduction, (), s.span)
        domain = map_domain(own.domain, name, indices, values, bounds)
        self.own[name] = StatementRanges({i: intervals[i] for i in indices}, domain)
        return new

    def lead(self, s: Statement, part: Statement, cut: Cut, shift: Callable[[Expr], Expr]) -> tuple[list[Statement], Statement]:
        """The reduction `part` of the blocks of `s` with the shift of each, made of its result; and `s`, which joins them."""
        result = Read(part.target, part.subscripts)
        shifts = self.for_blocks(f"{s.name}_shift", f"{s.target}.shift", part, shift(result))
        return [part, shifts], self.combine(s, part, cut, result)

    def combine(self, s: Statement, part: Statement, cut: Cut, value: Expr) -> Statement:
        """`s` as the reduction of `value`, over its left indices and the block, where `part` has points."""
        indices = (*s.left_indices, cut.block)
        self.set_ranges(s.name, indices, self.own[part.name].indices, part)
        return replace(s, indices=indices, value=value, where=())

    def for_blocks(self, name: str, target: str, part: Statement, value: Expr) -> Statement:
        """An assignment to a new tensor with one element for each that `part` has."""
        own, element = self.own[part.name], tuple(e.name for e in part.subscripts if isinstance(e, Index))
        self.add_tensor(target, self.program.tensor(part.target.removesuffix(".block")), tuple(own.indices[i] for i in element))
        self.set_ranges(name, element, own.indices, part)
        return Statement(name, target, part.subscripts, element, value, None, (), part.span)


Rule = Callable[[Statement, Program, Ranges], tuple[Program, Ranges, str] | None]
"""The rewritten program and what was done, for a reduction whose result others need as the shift of what they sum."""


def rewrite_leaders(program: Program, ranges: Ranges, rule: Rule, name: str) -> tuple[Program, Ranges, list[Remark]]:
    """Apply `rule` to each statement that is still there; the remarks are of the pass `name`."""
    remarks: list[Remark] = []
    for leader in program.statements:
        found = rule(leader, program, ranges) if leader in program.statements else None
        if found is not None:
            program, ranges, message = found
            remarks.append(Remark("passed", name, message, leader.name, leader.span))
    return program, ranges, remarks


def _sort(statements: list[Statement]) -> list[Statement]:
    """Writers before readers, otherwise in the order given."""
    writers: dict[str, list[Statement]] = {}
    for s in statements:
        writers.setdefault(s.target, []).append(s)
    sources = {s.name: [w for r in all_reads(s) for w in writers.get(r.tensor, [])] for s in statements}
    seen: set[str] = set()
    result: list[Statement] = []
    for root in statements:
        stack = [(root, False)]
        while stack:
            s, is_ready = stack.pop()
            if is_ready:
                result.append(s)
            elif s.name not in seen:
                seen.add(s.name)
                stack.append((s, True))
                stack += [(w, False) for w in reversed(sources[s.name]) if w.name not in seen]
    return result


def start_edit(program: Program, ranges: Ranges) -> Edit:
    return Edit(program, ranges, [], list(program.tensors), dict(ranges.statements), dict(ranges.tensors))


Change = tuple[Sequence[Statement], str]
"""What stands in the place of a statement, and a remark about it."""


def change_statements(
    rule: str, change: Callable[[Statement, Edit], Change | None], program: Program, ranges: Ranges
) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with what `change` makes of its statements, one at a time; None keeps a statement."""
    remarks: list[Remark] = []
    edit = start_edit(program, ranges)
    for s in program.statements:
        made = change(s, edit)
        if made is None:
            edit.statements.append(s)
        else:
            edit.statements += made[0]
            remarks.append(Remark("passed", rule, made[1], s.name, s.span))
    return (*edit.finish(), remarks) if remarks else (program, ranges, remarks)


def is_simple(s: Statement, ranges: Ranges) -> bool:
    """Whether a statement can be cut: a plain left side, no guards at run time, no elements of its own that it reads, and as a
    sum none that it leaves at the initial value."""
    if not s.has_plain_left or ranges.statements[s.name].guards or any(r.tensor == s.target for r in reads(s.value)):
        return False
    return s.reduction is None or writes_whole(s, ranges)


def writes_whole(s: Statement, ranges: Ranges) -> bool:
    """Whether the indices of a statement reach every element of its target: a sum gives the others the initial value, which an
    assignment in its place would not do."""
    return _reach_whole(s.subscripts, tuple(ranges.statements[s.name].indices.items()), tuple(ranges.tensors[s.target]))


@lru_cache(maxsize=256)  # every rule asks
def _reach_whole(subscripts: tuple[Expr, ...], indices: tuple[tuple[str, Interval], ...], region: tuple[Interval, ...]) -> bool:
    own = dict(indices)
    found: list[str] = []
    for subscript, whole in zip(subscripts, region, strict=True):
        steps = index_coefficients(subscript)
        if steps is None:
            return False
        reach: Expr = int_const(0)
        greatest = {i: own[i].lower + (own[i].extent - 1) for i in steps}
        least = {i: own[i].lower if c > 0 else greatest[i] for i, c in steps.items()}
        for i in sorted(steps, key=lambda i: abs(steps[i])):
            if abs(steps[i]) > 1 and (not isinstance(reach, Const) or abs(steps[i]) > int(reach.value) + 1):
                return False
            last = own[i].extent - 1
            reach = simplify(reach + abs(steps[i]) * last)
        first = simplify(substitute(subscript, least) - whole.lower)
        rest = simplify(reach - whole.extent)
        if first != int_const(0) or rest != int_const(-1):
            return False
        found += steps
    return len(found) == len(set(found))


def has_own_elements(s: Statement, ranges: Ranges) -> bool:
    """Whether different values of the left indices are different elements: each stands in one subscript, by a multiple greater
    than all that smaller ones there add up to."""
    intervals = ranges.statements[s.name].indices
    found: list[str] = []
    for subscript in s.subscripts:
        steps = index_coefficients(subscript)
        if steps is None:
            return False
        reach: int | None = 0
        for i in sorted(steps, key=lambda i: abs(steps[i])):
            if reach is None or abs(steps[i]) <= reach:
                return False
            extent = intervals[i].extent
            reach = reach + abs(steps[i]) * max(0, int(extent.value) - 1) if isinstance(extent, Const) else None
        found += steps
    return len(found) == len(s.left_indices)


def covers(inside: Statement, outside: Statement, place: Mapping[str, str], ranges: Ranges) -> bool:
    """Whether every point of `inside`, seen through `place` (index of `outside` → index of `inside`), is one of `outside`."""
    kept = [place[i] for i in outside.indices]
    domain = project_domain(ranges.statements[inside.name].domain, inside.indices, outside.name, kept)
    own = ranges.statements[outside.name].domain
    return bool(domain.align_params(own.get_space()).is_subset(own.align_params(domain.get_space())))


def plain_place(read: Read, element: tuple[Expr, ...]) -> dict[str, str] | None:
    """Index of a writer's left side `element` → index at the same place of `read`; None where the read is not plain."""
    names = [e.name for e in read.subscripts if isinstance(e, Index)]
    if len(names) != len(read.subscripts) or len(set(names)) != len(names):
        return None
    return {e.name: n for e, n in zip(element, names, strict=True) if isinstance(e, Index)}


def find_chain(
    first: Statement, index: str, members: dict[str, str], program: Program, ranges: Ranges
) -> dict[str, int] | None:
    """Temporaries behind `first` that only `members` read, each at its index, so that they are cut too: the dimension each.

    None where `first` reads a temporary along `index` that others want whole."""
    writers = program.writers()
    found: dict[str, int] = {}
    pending = [(first, index)]
    inside = dict(members)
    while pending:
        s, k = pending.pop()
        for read in dict.fromkeys(reads(s.value)):
            moving = [d for d, e in enumerate(read.subscripts) if mentions(e, k)]
            if not moving or program.tensor(read.tensor).role != "temporary" or read.tensor in found:
                continue
            (writer, *more) = writers[read.tensor]
            users = [u for u in program.statements if any(r.tensor == read.tensor for r in all_reads(u))]
            can = not more and is_simple(writer, ranges) and len(moving) == 1
            if not can or not all(_reads_at(u, read.tensor, moving[0], inside) for u in users):
                return None
            if any(isinstance(n, Pad) and n.read.tensor == read.tensor for u in users for n in walk(u.value)):
                return None
            interval = ranges.statements[first.name].indices[index]
            own = writer.subscripts[moving[0]]
            if not isinstance(own, Index) or ranges.statements[writer.name].indices[own.name] != interval:
                return None
            found[read.tensor] = moving[0]
            inside[writer.name] = own.name
            pending.append((writer, own.name))
    return found


def _reads_at(s: Statement, tensor: str, dimension: int, inside: Mapping[str, str]) -> bool:
    """Whether `s` is one of those `inside`, and reads `tensor` in its value at its own index only."""
    mine = [r for r in all_reads(s) if r.tensor == tensor]
    if s.name not in inside or len(mine) != sum(r.tensor == tensor for r in reads(s.value)):
        return False
    return all(r.subscripts[dimension] == Index(inside[s.name]) for r in mine)


def redirect(expr: Expr, chain: Mapping[str, int], index: str, cut: Cut) -> Expr:
    """Reads of tensors in `chain` at the point of `index`, in the blocks of `cut`; those of other points stay."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in chain or node.subscripts[chain[node.tensor]] != Index(index):
            return None
        if sum(n == Index(index) for e in node.subscripts for n in walk(e)) > 1:
            return None
        return Read(f"{node.tensor}.block", cut.element(node.subscripts, index), node.span)

    return rewrite(expr, rule)


def replace_node(expr: Expr, old: Expr, new: Expr) -> Expr:
    return rewrite(expr, lambda node: new if node == old else None)


def linear_in(expr: Expr, one: Expr, other: Expr, with_rest: bool = True) -> tuple[float, float] | None:
    """Coefficients of `one` and `other` in a sum of products with literals; None where one of them stands elsewhere.

    `with_rest`: terms without either are left out; else there must be none."""
    if expr == one:
        return 1.0, 0.0
    if expr == other:
        return 0.0, 1.0
    match expr:
        case Call(op=("add" | "sub") as op, args=(a, b)):
            left, right = linear_in(a, one, other, with_rest), linear_in(b, one, other, with_rest)
            sign = 1.0 if op == "add" else -1.0
            return left and right and (left[0] + sign * right[0], left[1] + sign * right[1])
        case Call(op="neg", args=(a,)):
            inner = linear_in(a, one, other, with_rest)
            return inner and (-inner[0], -inner[1])
        case Call(op="mul", args=(a, b)):
            for factor, rest in ((a, b), (b, a)):
                value = literal(factor)
                if value is not None:
                    inner = linear_in(rest, one, other, with_rest)
                    return inner and (value * inner[0], value * inner[1])
        case Call(op="truediv", args=(a, b)):
            value = literal(b)
            if value:
                inner = linear_in(a, one, other, with_rest)
                return inner and (inner[0] / value, inner[1] / value)
    return None if not with_rest or any(node in (one, other) for node in walk(expr)) else (0.0, 0.0)


def literal(expr: Expr) -> float | None:
    """The value of a literal of a floating type, also where it is written as a conversion; None for anything else."""
    match expr:
        case Const(value=value) if not isinstance(value, bool):
            return float(value)
        case Cast(value=inner) if expr.dtype.is_float:
            number = _integer(inner)
            return literal(inner) if number is None else float(number)
        case Call(op="neg", args=(a,)):
            inner_value = literal(a)
            return None if inner_value is None else -inner_value
        case Call(op="truediv", args=(a, b)):
            x, y = literal(a), literal(b)
            return None if x is None or not y else x / y
    return None


def _integer(expr: Expr) -> int | None:
    """The value of sums and products of whole numbers (of sizes, once they are known); None where a type may wrap around."""
    for node in walk(expr):
        is_number = isinstance(node, Const) and not isinstance(node.value, (bool, float))
        is_wide = isinstance(node, Cast) and node.dtype.is_integer and node.dtype.bits >= 32
        if not (is_number or is_wide or (isinstance(node, Call) and node.op in ("add", "sub", "mul"))):
            return None
    return evaluate(expr, {}) if all(abs(evaluate(node, {})) < 1 << 31 for node in walk(expr)) else None


def is_factor(expr: Expr, part: Expr) -> bool:
    """Whether `expr` is a product with `part` as one factor, which stands nowhere else in it."""
    if expr == part:
        return True
    match expr:
        case Call(op="mul", args=(a, b)):
            return is_factor(a, part) != is_factor(b, part) and sum(node == part for node in walk(expr)) == 1
        case Call(op="neg", args=(a,)):
            return is_factor(a, part)
        case Call(op="truediv", args=(a, b)):
            return is_factor(a, part) and all(node != part for node in walk(b))
    return False
