"""Which buffers a loop can keep in register accumulators while it runs: a question about its body, asked before emission.

The scheduler names the buffers (`Loop.registers`); here we make sure that holding them cannot be seen: every use inside is an
update of one and the same set of elements, and different copies and lanes update different elements or share one on purpose.
What does not qualify stays in memory, which is always right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.linear import as_linear, index_names
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Expr, Index, reads
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.walk import node_expressions
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class _Site:
    update: Update
    inner: frozenset[str]
    """Variables that change while the loop runs."""
    expanded: tuple[Loop, ...]
    conditions: tuple[tuple[Expr, bool, int], ...]
    """Conditions on the way, with the arm taken and the identity of the branch."""


def held_buffers(state: State, ctx: Context, loop: Loop) -> frozenset[str]:
    """Those of `loop.registers` that the code inside lets us keep out of memory while it runs; the others stay in memory."""
    wanted = [name for name in loop.registers if name not in state.held]
    return frozenset(name for name in wanted if _is_holdable(ctx, loop, name, _sharing(state, name)))


def _sharing(state: State, name: str) -> frozenset[str]:
    """Buffers that may be the same memory as `name`."""
    other = {b.name for b in state.nest.buffers if name in b.may_alias}
    return frozenset(other | set(state.by_name[name].may_alias)) - {name}


def _is_holdable(ctx: Context, loop: Loop, name: str, sharing: frozenset[str]) -> bool:
    expanded = (loop,) if loop.is_expanded else ()
    inner = frozenset() if loop.is_expanded else frozenset((loop.var,))
    if ctx.lane is not None and not all(_depends_on(s.subscripts, ctx.lane) for s in _updates_of(loop.body, name)):
        return False  # the lanes outside share the element: each iteration adds their sum to memory
    if _uses(loop.body, sharing):
        return False
    sites: list[_Site] = []
    if not _collect(loop.body, name, inner, expanded, (), sites):
        return False
    if any(start.buffer == name for start in loop.initial) and any(site.conditions for site in sites):
        return False  # the initial value is due where the condition fails, too
    shapes = set()
    for site in sites:
        relevant = _relevant_loops(site, ctx.ahead)
        if relevant is None:
            return False
        shapes.add((site.update.subscripts, site.update.op, relevant))
    if len(shapes) > 1 or not sites:
        return False
    return all(_same_or_exclusive(a, b) for i, a in enumerate(sites) for b in sites[:i])


def _uses(body: tuple[Node, ...], names: frozenset[str]) -> bool:
    """Whether something in `body` reads or writes one of `names`."""
    for node in body if names else ():
        if any(read.tensor in names for expr in node_expressions(node) for read in reads(expr)):
            return True
        match node:
            case Store() | Update():
                if node.buffer in names:
                    return True
            case If():
                if _uses(node.body + node.orelse, names):
                    return True
            case Loop():
                if _uses(node.body, names):
                    return True
    return False


def _depends_on(subscripts: tuple[Expr, ...], variable: str) -> bool:
    return any(variable in index_names(s) for s in subscripts)


def _updates_of(body: tuple[Node, ...], name: str) -> Iterator[Update]:
    for node in body:
        match node:
            case Update() if node.buffer == name:
                yield node
            case If():
                yield from _updates_of(node.body + node.orelse, name)
            case Loop():
                yield from _updates_of(node.body, name)


def _collect(
    body: tuple[Node, ...],
    name: str,
    inner: frozenset[str],
    expanded: tuple[Loop, ...],
    conditions: tuple[tuple[Expr, bool, int], ...],
    sites: list[_Site],
) -> bool:
    """Gather the updates of `name`; False where it is used in any other way."""
    for node in body:
        if any(read.tensor == name for expr in node_expressions(node) for read in reads(expr)):
            return False
        match node:
            case Store():
                if node.buffer == name:
                    return False
            case Update():
                if node.buffer == name:
                    sites.append(_Site(node, inner, expanded, conditions))
            case If():
                arms = ((node.body, True), (node.orelse, False))
                if not all(
                    _collect(b, name, inner, expanded, (*conditions, (node.condition, arm, id(node))), sites) for b, arm in arms
                ):
                    return False
            case Loop():
                if node.kind == "parallel" or any(start.buffer == name for start in node.initial):
                    return False
                deeper = (inner, (*expanded, node)) if node.is_expanded else (inner | {node.var}, expanded)
                if not _collect(node.body, name, *deeper, conditions, sites):
                    return False
    return True


def _relevant_loops(site: _Site, positive: Collection[Expr]) -> tuple[object, ...] | None:
    """The expanded loops whose copies have elements of their own, or None where the target cannot be held.

    `positive`: expressions that are at least 1."""
    subscripts = site.update.subscripts
    names = set().union(*(index_names(s) for s in subscripts)) if subscripts else set()
    own = [loop for loop in site.expanded if loop.var in names]
    changing = site.inner | {loop.var for loop in site.expanded if loop.var not in names}
    if names & changing or any(reads(s) for s in subscripts):
        return None
    bounds = [bound for loop in own for bound in (loop.lower, loop.upper)]
    tests = [condition for condition, _, _ in site.conditions]
    if any(index_names(e) & changing or reads(e) for e in bounds + tests):
        return None
    if not _is_disjoint(subscripts, own, positive):
        return None
    return tuple((loop.var, loop.kind, loop.lower, loop.upper, loop.max_trip, loop.lanes) for loop in own)


def _is_disjoint(subscripts: tuple[Expr, ...], own: list[Loop], positive: Collection[Expr]) -> bool:
    """Whether different copies and lanes write different elements: in each dimension the strides of the variables nest, or one
    variable alone has a stride that is at least 1."""
    trips = {loop.var: loop.max_trip or 1 for loop in own}
    seen: set[str] = set()
    for subscript in subscripts:
        env = {name: Val("%", "i64") for name in index_names(subscript)}
        strides: list[tuple[int, int, str]] = []
        is_open = False
        for atoms, c in as_linear(subscript, env, None).items():
            touched = [n for atom in atoms for n in index_names(atom) if n in trips]
            if not touched:
                continue
            variables = [atom.name for atom in atoms if isinstance(atom, Index) and atom.name in trips]
            if len(variables) != 1 or len(touched) != 1:
                return False
            if len(atoms) > 1 and not all(atom in positive or atom == Index(variables[0]) for atom in atoms):
                return False
            is_open |= len(atoms) > 1
            strides.append((abs(c), trips[variables[0]], variables[0]))
        if is_open and len(strides) > 1:
            return False
        reach = 0
        for stride, trip, name in sorted(strides):
            if name in seen or stride <= reach:
                return False
            seen.add(name)
            reach += stride * (_rounded(trip, name, own) - 1)
    return seen == set(trips)


def _rounded(trip: int, name: str, own: list[Loop]) -> int:
    """Iterations including the lanes of the last vector: those beyond the bound are masked, but the keys must differ."""
    lanes = next(loop.lanes if loop.kind == "vector" else 1 for loop in own if loop.var == name)
    return -(-trip // lanes) * lanes


def _same_or_exclusive(a: _Site, b: _Site) -> bool:
    taken = {branch: arm for _, arm, branch in a.conditions}
    if any(taken.get(branch, arm) != arm for _, arm, branch in b.conditions):
        return True
    return {(c, arm) for c, arm, _ in a.conditions} == {(c, arm) for c, arm, _ in b.conditions}
