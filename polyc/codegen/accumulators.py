"""Register accumulators: updates of one element by a whole loop kept in registers.

A `Frame` belongs to a loop that holds buffers.  The first update of an element inside it makes a stack slot (SSA after
LLVM's first pass), loaded or set to the identity in the loop's preheader, which is still open for writing; behind the loop
the slots of each element are combined, pairwise and in a fixed order, and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from polyc.codegen import vectors
from polyc.codegen.arithmetic import emit_operator
from polyc.codegen.builder import Block, Val, memory_type
from polyc.codegen.context import Context, State
from polyc.codegen.expressions import (
    as_mask,
    as_scalar,
    byte_offset,
    eval_expr,
    eval_predicates,
    eval_value,
    load_element,
    store_element,
)
from polyc.codegen.linear import LANE, Linear, as_linear, index_names
from polyc.ir.expr import Call, Expr, identity_of, reads
from polyc.ir.loops import Guard, If, Loop, Node, Store, Update

Key = tuple[str, frozenset[tuple[tuple[Expr, ...], int]], tuple[Expr | Val, ...]]
"""Buffer, byte offset, and the conditions of the branches on the way: exclusive branches have elements of their own."""


@dataclass(slots=True)
class Element:
    """One target of updates inside a frame: an element, or a vector of them; `parts` are its partial results."""

    update: Update
    context: Context
    direct: Val | None = None
    """Slot that starts from memory."""
    parts: dict[tuple[str, int], tuple[Val, int]] = field(default_factory=dict)
    """Vector slots (and lanes) that start from the identity, by lane variable and interleaved copy."""


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


def combine(state: State, update: Update) -> Callable[[Val, Val], Val]:
    """``(new, old) -> old op new``."""
    dtype = state.by_name[update.buffer].dtype
    return lambda new, old: emit_operator(state.fn, state.target, update.op, [new, old], dtype)


def apply_update(state: State, ctx: Context, update: Update, old: Callable[[], Val]) -> Val:
    """``old op value``.  A sum of products is fused: each partial sum is rounded once per term, where hardware can."""
    dtype = state.by_name[update.buffer].dtype
    match update.value:
        case Call("mul", (a, b)) if update.op == "add" and dtype.is_float and state.target.has_fma:
            left = eval_value(state, ctx, a)
            right = left if a == b else eval_value(state, ctx, b)
            return state.fn.intrinsic("fma", left, right, old())
        case _:
            return combine(state, update)(eval_value(state, ctx, update.value), old())


def identity_value(state: State, ctx: Context, update: Update, lanes: int) -> Val:
    identity = identity_of(update.op, state.by_name[update.buffer].dtype)
    return state.fn.splat(eval_expr(state, ctx, identity), lanes)


def emit_update(state: State, ctx: Context, update: Update) -> None:
    """Emit one update, in the form that its frame, its lanes and its target ask for."""
    frame = state.held.get(update.buffer)
    if frame is not None:
        _update_slot(state, ctx, update, frame)
        return
    buffer = state.by_name[update.buffer]
    offset = byte_offset(ctx, buffer, update.subscripts)
    if ctx.lane is None or _mentions_lane(offset, ctx.lane):
        value = apply_update(state, ctx, update, lambda: load_element(state, ctx, buffer, update.subscripts))
        store_element(state, ctx, buffer, update.subscripts, value)
        return
    # One element updated by all lanes: their tree first, then the element.
    value = state.fn.splat(eval_value(state, ctx, update.value), ctx.lanes)
    guard = eval_predicates(state, ctx)
    if (mask := as_mask(state, ctx, guard)) is not None:
        value = state.fn.select(mask, value, identity_value(state, ctx, update, ctx.lanes))
    total = vectors.reduce_lanes(state.fn, value, combine(state, update))
    with state.fn.when(as_scalar(state, guard)):
        outer = replace(ctx, lane=None, lanes=1, predicates=())
        old = load_element(state, outer, buffer, update.subscripts)
        store_element(state, outer, buffer, update.subscripts, combine(state, update)(total, old))


def _mentions_lane(offset: Linear, lane: str) -> bool:
    return any(
        atom is LANE or (lane in index_names(atom) and getattr(atom, "name", None) != lane)
        for atoms in offset
        for atom in atoms
    )


def _update_slot(state: State, ctx: Context, update: Update, frame: Frame) -> None:
    fn, buffer = state.fn, state.by_name[update.buffer]
    offset = byte_offset(ctx, buffer, update.subscripts)
    own_lane = ctx.lane is not None and _mentions_lane(offset, ctx.lane)
    names = set().union(*(index_names(s) for s in update.subscripts)) if update.subscripts else set()
    branches = tuple(p.condition for p in ctx.predicates[len(frame.context.predicates) :] if p.variable is None)
    key: Key = (update.buffer, frozenset(offset.items()), branches)
    element = frame.elements.get(key)
    if element is None:
        element = frame.elements[key] = Element(update, _target_context(ctx, frame, names, own_lane))
    reduced = ctx.lane is not None and not own_lane
    lanes = ctx.lanes if ctx.lane is not None else 1
    slot = _part_slot(state, ctx, element, frame) if reduced else _direct_slot(state, element, frame, lanes)
    type = Val("", memory_type(buffer.dtype) if buffer.dtype.kind != "b" else "i1", lanes).full_type
    access = f"{slot}, align {_slot_align(type, lanes, buffer.dtype.itemsize)}"
    # Copies and lanes that have an element of their own are dropped at its store; only those that share one need a blend.
    shared = tuple(p for p in ctx.predicates[len(frame.context.predicates) :] if not (p.variable and p.variable in names))
    old = fn.effect_value(f"load {type}, {access}", _scalar(type), lanes)
    new = fn.splat(apply_update(state, ctx, update, lambda: old), lanes)
    scalar, mask = eval_predicates(state, replace(ctx, predicates=shared))
    condition = fn.and_(scalar, mask)
    if condition is not None:
        new = fn.select(condition, new, old)
    fn.effect(f"store {new}, {access}")


def _scalar(type: str) -> str:
    return type.split()[-1].rstrip(">") if type.startswith("<") else type


def _slot_align(type: str, lanes: int, itemsize: int) -> int:
    size = itemsize * lanes
    return min(64, size & -size) if size else 1


def _target_context(ctx: Context, frame: Frame, names: set[str], own_lane: bool) -> Context:
    """The context in which the target can be read and written outside the loop: no variable of the loop is left."""
    new = ctx.predicates[len(frame.context.predicates) :]
    kept = tuple(
        replace(p, branched=False)
        for p in new
        if (p.variable in names if p.variable is not None else not isinstance(p.condition, Val))
    )
    env = {**frame.context.env, **{n: b for n, b in ctx.env.items() if n in names and not isinstance(b, Val)}}
    env |= {n: b for n, b in ctx.env.items() if n in frame.context.env}
    predicates = frame.context.predicates + kept
    if own_lane:
        return replace(ctx, env=env, predicates=predicates)
    return replace(ctx, env=env, lane=None, lanes=1, predicates=predicates)


def _direct_slot(state: State, element: Element, frame: Frame, lanes: int) -> Val:
    if element.direct is None:
        buffer = state.by_name[element.update.buffer]
        type = Val("", "i1" if buffer.dtype.kind == "b" else memory_type(buffer.dtype), lanes).full_type
        align = _slot_align(type, lanes, buffer.dtype.itemsize)
        slot = element.direct = state.fn.alloca(type, align)
        with state.fn.at(frame.preheader, frame.scopes):
            value = _start_value(state, element, frame)
            state.fn.effect(f"store {state.fn.splat(value, lanes)}, {slot}, align {align}")
    return element.direct


def _start_value(state: State, element: Element, frame: Frame) -> Val:
    """What an element is worth before the loop."""
    initial = frame.initial.get(element.update.buffer)
    if initial is not None:
        return eval_value(state, element.context, initial)
    return load_element(state, element.context, state.by_name[element.update.buffer], element.update.subscripts)


def _part_slot(state: State, ctx: Context, element: Element, frame: Frame) -> Val:
    assert ctx.lane is not None
    key = (ctx.lane, ctx.copy)
    if key not in element.parts:
        buffer = state.by_name[element.update.buffer]
        type = Val("", "i1" if buffer.dtype.kind == "b" else memory_type(buffer.dtype), ctx.lanes).full_type
        align = _slot_align(type, ctx.lanes, buffer.dtype.itemsize)
        slot = state.fn.alloca(type, align)
        element.parts[key] = slot, ctx.lanes
        with state.fn.at(frame.preheader, frame.scopes):
            start = identity_value(state, element.context, element.update, ctx.lanes)
            state.fn.effect(f"store {start}, {slot}, align {align}")
    return element.parts[key][0]


def finish_frame(state: State, frame: Frame) -> None:
    """Behind the loop: combine the partial results of every element and store it."""
    for element in frame.elements.values():
        update, ctx = element.update, element.context
        buffer = state.by_name[update.buffer]
        op = combine(state, update)
        value: Val | None = None
        if element.direct is not None:
            value = _load_slot(state, update, element.direct, ctx.lanes)
        partial: dict[int, list[Val]] = {}
        for slot, lanes in element.parts.values():
            partial.setdefault(lanes, []).append(_load_slot(state, update, slot, lanes))
        trees = [vectors.reduce_lanes(state.fn, vectors.reduce_pairwise(group, op), op) for group in partial.values()]
        if value is None:
            value = _start_value(state, element, frame)
        for total in trees:
            value = op(total, value)
        store_element(state, ctx, buffer, update.subscripts, value)


def _load_slot(state: State, update: Update, slot: Val, lanes: int) -> Val:
    dtype = state.by_name[update.buffer].dtype
    type = "i1" if dtype.kind == "b" else memory_type(dtype)
    full = Val("", type, lanes).full_type
    return state.fn.effect_value(f"load {full}, {slot}, align {_slot_align(full, lanes, dtype.itemsize)}", type, lanes)


# -- which buffers a loop can hold


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
    return frozenset(name for name in wanted if _is_holdable(ctx, loop, name))


def _is_holdable(ctx: Context, loop: Loop, name: str) -> bool:
    expanded = (loop,) if is_expanded(loop) else ()
    inner = frozenset() if is_expanded(loop) else frozenset((loop.var,))
    if ctx.lane is not None and not all(_depends_on(s.subscripts, ctx.lane) for s in _updates_of(loop.body, name)):
        return False  # the lanes outside share the element: each iteration adds their sum to memory
    sites: list[_Site] = []
    if not _collect(loop.body, name, inner, expanded, (), sites):
        return False
    shapes = set()
    for site in sites:
        relevant = _relevant_loops(site)
        if relevant is None:
            return False
        shapes.add((site.update.subscripts, site.update.op, relevant))
    if len(shapes) > 1 or not sites:
        return False
    return all(_same_or_exclusive(a, b) for i, a in enumerate(sites) for b in sites[:i])


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


def is_expanded(loop: Loop) -> bool:
    return loop.kind in ("unroll", "vector") and loop.max_trip is not None


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
                if node.kind == "parallel":
                    return False
                deeper = (inner, (*expanded, node)) if is_expanded(node) else (inner | {node.var}, expanded)
                if not _collect(node.body, name, *deeper, conditions, sites):
                    return False
    return True


def node_expressions(node: Node) -> Iterator[Expr]:
    """The expressions of a node itself, not of its body."""
    match node:
        case Store() | Update():
            yield from node.subscripts
            yield node.value
        case Guard():
            yield from (node.value, node.bound)
            if node.condition is not None:
                yield node.condition
        case If():
            yield node.condition
        case Loop():
            yield from (node.lower, node.upper)


def _relevant_loops(site: _Site) -> tuple[object, ...] | None:
    """The expanded loops whose copies have elements of their own, or None where the target cannot be held."""
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
    if not _is_disjoint(subscripts, own):
        return None
    return tuple((loop.var, loop.kind, loop.lower, loop.upper, loop.max_trip, loop.lanes) for loop in own)


def _is_disjoint(subscripts: tuple[Expr, ...], own: list[Loop]) -> bool:
    """Whether different copies and lanes write different elements: in each dimension the strides of the variables nest."""
    trips = {loop.var: loop.max_trip or 1 for loop in own}
    seen: set[str] = set()
    for subscript in subscripts:
        env = {name: Val("%", "i64") for name in index_names(subscript)}
        strides: list[tuple[int, int, str]] = []
        for atoms, c in as_linear(subscript, env, None).items():
            touched = [n for atom in atoms for n in index_names(atom) if n in trips]
            if not touched:
                continue
            name = getattr(atoms[0], "name", "")
            if len(atoms) != 1 or name not in trips:
                return False
            strides.append((abs(c), trips[name], name))
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
