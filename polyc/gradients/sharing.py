"""Long expressions as several statements, so that their derivatives do not grow with the number of ways through them.

    before  ``y[i] = f(f(f(x[i])))``
    after   ``v[i] = f(x[i])``, ``w[i] = f(v[i])``, ``y[i] = f(w[i])``

The derivative of ``f(u) = u * u + u`` mentions u five times, and an expression is a tree: nested n levels deep, the derivative
has 6ⁿ nodes where the function has 3ⁿ.  Values that stand in several places, and parts of very long expressions, become
temporaries over the points of their statement; what is computed again where it is read is decided like that of any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from polyc.gradients.adjoints import Conditions, select
from polyc.gradients.inputs import Names
from polyc.gradients.rules import is_differentiable
from polyc.ir.expr import Call, Cast, Expr, Index, Read, Select, ge, index_names, lt, map_children, reads, type_of
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Tensor, Where
from polyc.ir.segments import loaded_clauses
from polyc.poly.frames import upper_end
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval
from polyc.records import replace

MAX_NODES = 1500
"""Of a statement's derivative, as a tree in either mode, from which on its value is taken apart."""

MAX_PIECE = 24
"""Nodes of a part."""

MIN_SHARED = 4
"""Nodes of what becomes a temporary because it stands in several places."""

MAX_WAYS = 8
"""Different conditions under which a value is computed, of which only one may be left for a temporary."""


def share_values(program: Program) -> Program:
    """The program with temporaries for parts of long expressions; the very same one where there are none."""
    inside = {n for r in program.rules for n in r.inside}
    found = {s.name: _Parts(s, program) for s in program.statements if s.target not in inside and _may_be_taken_apart(s)}
    found = {name: parts for name, parts in found.items() if parts.estimate() > MAX_NODES}
    if not found:
        return program
    ranges, names = infer_ranges(program), Names(program)
    tensors, statements = list(program.tensors), list[Statement]()
    for s in program.statements:
        if s.name in found:
            made, own = found[s.name].take_apart(names, ranges.statements[s.name].indices)
            tensors += made
            statements += own
        else:
            statements.append(s)
    return replace(program, tensors=tuple(tensors), statements=tuple(statements))


def _may_be_taken_apart(s: Statement) -> bool:
    is_tuple = s.reduction is not None and s.reduction.monoid is not None
    return isinstance(s.value, (Call, Select, Cast)) and not is_tuple and not any(loaded_clauses(s.where))


class _Parts:
    """The value of a statement as a graph: each different node once."""

    def __init__(self, s: Statement, program: Program) -> None:
        self.s, self.types = s, program.types
        self.base = program.tensor(s.target).base
        self.known: dict[Expr, Expr] = {}
        self.seen: dict[int, Expr] = {}
        self.root = self._unite(s.value)
        self.order = self._operands_first()
        self.sizes: dict[Expr, int] = {}
        for node in self.order:
            self.sizes[node] = 1 + sum(self.sizes[e] for e in _operands(node))

    def _unite(self, expr: Expr) -> Expr:
        found = self.seen.get(id(expr))
        if found is None:
            new = map_children(expr, self._unite) if _operands(expr) else expr
            found = self.seen[id(expr)] = self.known.setdefault(new, new)
        return found

    def _operands_first(self) -> list[Expr]:
        order: dict[Expr, None] = {}
        stack = [(self.root, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                order.setdefault(node)
            elif node not in order:
                stack.append((node, True))
                stack += [(e, False) for e in _operands(node)]
        return list(order)

    def estimate(self) -> int:
        """Nodes of the derivative as a tree, in the mode in which there are more."""
        tangents: dict[Expr, int] = {}
        adjoints = Counter({self.root: 1})
        for node in self.order:
            own = 0 if _is_linear(node) else self.sizes[node]
            tangents[node] = 1 + sum(tangents[e] + own for e in _operands(node))
        for node in reversed(self.order):
            own = 0 if _is_linear(node) else self.sizes[node]
            for e in _operands(node):
                adjoints[e] += adjoints[node] + own
        return max(tangents[self.root], sum(n for e, n in adjoints.items() if not _operands(e) and reads(e)))

    # -- taking apart
    def take_apart(self, names: Names, intervals: dict[str, Interval]) -> tuple[list[Tensor], list[Statement]]:
        """The temporaries, and the statements that make them, the statement itself last."""
        s = self.s
        tensors: list[Tensor] = []
        statements: list[Statement] = []
        new: dict[Expr, Expr] = {}
        ways = self._ways()

        def build(node: Expr) -> Expr:
            return new[node] if node in new else map_children(node, build) if _operands(node) else node

        for node in self._cut(ways):
            dtype, (conditions,) = type_of(node, self.types), ways[node]
            value = select(tuple((build(c), holds) for c, holds in conditions), build(node), dtype)
            dims, where = _points(s, index_names(value), intervals)
            target = names.add(f"{s.target}.value")
            element = tuple(Index(i) for i in dims)
            tensors.append(Tensor(target, dtype, len(dims), None, "temporary", self.base, s.span))
            statements.append(Statement(names.add(f"S_{target}"), target, element, dims, value, None, where, s.span))
            new[node] = Read(target, element, s.span)
        bounded = {w.index for w in s.where if isinstance(w, RangeClause)}
        pinned = (RangeClause(i, b.lower, upper_end(b)) for i, b in intervals.items() if i not in bounded)
        return tensors, [*statements, replace(s, value=build(self.root), where=(*s.where, *pinned))]

    def _cut(self, ways: dict[Expr, list[Conditions]]) -> Iterator[Expr]:
        """The nodes that become temporaries, operands before what is made of them."""
        uses = Counter(e for node in self.order for e in _operands(node))
        sizes: dict[Expr, int] = {}
        for node in self.order:
            sizes[node] = 1 + sum(sizes[e] for e in _operands(node))
            dtype = type_of(node, self.types)
            may = is_differentiable(dtype) and not dtype.is_storage and bool(_operands(node)) and bool(reads(node))
            if not may or node is self.root or len(ways[node]) != 1:
                continue
            if sizes[node] > MAX_PIECE or (uses[node] > 1 and sizes[node] >= MIN_SHARED):
                sizes[node] = 1
                yield node

    def _ways(self) -> dict[Expr, list[Conditions]]:
        """For each node the conditions under which it is computed, without those that others imply; none where there are too
        many."""
        found: dict[Expr, dict[Conditions, None]] = {self.root: {(): None}}
        reduced: dict[Expr, list[Conditions]] = {}
        lost: set[Expr] = set()
        for node in reversed(self.order):
            own = [] if node in lost else _reduce(list(found.pop(node)))
            reduced[node] = own = own if len(own) <= MAX_WAYS else []
            for e, more in _arms(node):
                found.setdefault(e, {}).update(dict.fromkeys((*way, *more) for way in own))
                if not own:
                    lost.add(e)
        return reduced


def _operands(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Call():
            return node.args
        case Select():
            return node.condition, node.then, node.other
        case Cast():
            return (node.value,)
    return ()


def _arms(node: Expr) -> list[tuple[Expr, Conditions]]:
    if isinstance(node, Select):
        return [(node.condition, ()), (node.then, ((node.condition, True),)), (node.other, ((node.condition, False),))]
    return [(e, ()) for e in _operands(node)]


def _is_linear(node: Expr) -> bool:
    return not isinstance(node, Call) or node.op in ("add", "sub", "neg")


def _reduce(ways: list[Conditions]) -> list[Conditions]:
    """Without those that begin with another one, and with what is left where both arms of a selection are there."""
    while True:
        kept = [w for w in ways if not any(w[: len(o)] == o for o in ways if o != w)]
        both = next((w for w in kept if w and (*w[:-1], (w[-1][0], not w[-1][1])) in kept), None)
        if both is None:
            return kept
        ways = [*kept, both[:-1]]


def _points(s: Statement, names: set[str], intervals: dict[str, Interval]) -> tuple[tuple[str, ...], tuple[Where, ...]]:
    """The indices that points of a statement are told by which have these indices, and the clauses that keep them inside."""
    clauses = [w for w in s.where if not isinstance(w, Exists)]
    tied = [index_names(*w.expressions) | ({w.index} if isinstance(w, RangeClause) else set()) for w in clauses]
    is_new = True
    while is_new:
        more = {i for t in tied if len(t) > 1 and t & names for i in t} - names
        names, is_new = names | more, bool(more)
    dims = tuple(i for i in s.indices if i in names)
    where: list[Where] = [RangeClause(i, intervals[i].lower, upper_end(intervals[i])) for i in dims]
    for w in clauses:
        if isinstance(w, Condition) and index_names(w.condition) <= names:
            where.append(w)
        elif isinstance(w, RangeClause) and w.index in names:
            where += [Condition(test) for test in _bounds(w) if index_names(*w.expressions)]
    return dims, tuple(where)


def _bounds(w: RangeClause) -> Sequence[Expr]:
    return ge(Index(w.index), w.lower), lt(Index(w.index), w.upper)
