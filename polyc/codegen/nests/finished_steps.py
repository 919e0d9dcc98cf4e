"""Steps of a recurrence behind the one that ended it: what is left of them where a flag says that nothing moves any more.

    before  ``for t { r = f(x); e = norm(r); d[t + 1] = d[t] || e < eps; x = d[t + 1] ? x : g(x, r) }``
    after   ``for t { if (d[t]) { d[t + 1] = true } else { r = f(x); …; x = d[t + 1] ? x : g(x, r) } }``

A flag that holds once holds at all later steps, since each step stores ``flag or …``.  This is loop unswitching with a
condition that changes at most once, and then elimination of dead stores in the arm where it holds: copies of a value to its own
place, and all that no later step, and nothing behind the loop, reads.  A value that has W places in turn (a circular buffer) is
copied in the first W - 1 of these steps; then all its places hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyc.codegen.nests.partition import choose
from polyc.ir.access import accesses_in, read_for_places, reads_in, with_values, writes_in, written_in
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, all_hold, ge, mentions, operands_of, reads, substitute
from polyc.ir.facts import Known, assume, hold, is_empty, span_of
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import difference, growth, simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import (
    Body,
    Fact,
    Scope,
    loops_in,
    nodes_in,
    replace_nodes,
    rewrite_nest,
    rewrite_nodes,
    walk_nodes,
)
from polyc.records import dataclass, replace


def skip_finished_steps(nest: LoopNest) -> LoopNest:
    """The nest where steps behind the last one of a recurrence run no loops."""
    own = {b.name for b in nest.buffers if b.position is None and not b.may_alias}
    flags = {b.name for b in nest.buffers if b.name in own and b.dtype == BOOL}

    def visit(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind != "serial" or node.step != 1 or node.registers:
            return None
        if any(loop.kind != "parallel" for loop in scope.loops) or not any(loops_in(node.body)):
            return None
        written = nest.memory_of(written_in(node.body))
        for flag in _find_flags(node.body, node, frozenset(written)):
            unswitched = _unswitch(flag, own, nest) if flag.buffer in flags else None
            if unswitched is not None:
                return unswitched
        return None

    return rewrite_nest(nest, visit)


@dataclass(frozen=True, slots=True)
class _Flag:
    """``buffer[after] = buffer[before] || …`` in the steps of a loop where `tests` of its variable hold."""

    loop: Loop
    written: frozenset[str]
    """What the loop may write."""
    buffer: str
    before: tuple[Expr, ...]
    after: tuple[Expr, ...]
    tests: tuple[Expr, ...]
    last: tuple[Expr, ...]
    """Those of `tests` that fail behind some step; the others fail before some."""

    def held(self, first: int, back: int = 0) -> Expr:
        """Whether it held before the step `back` steps ago; at none of the `first` steps of the loop, which may not ask."""
        index = Index(self.loop.var)
        earlier = {self.loop.var: index - back}
        flag = Read(self.buffer, tuple(simplify(substitute(e, earlier)) for e in self.before))
        tests = [t if t in self.last else simplify(substitute(t, earlier)) for t in self.tests]
        tests += [ge(index, simplify(self.loop.lower + first))] if first else []
        return Select(all_hold(tests), flag, Const(False, BOOL)) if tests else flag

    def known(self, is_asked: bool, *held: Expr) -> Known:
        """What is known at a step behind one before which the flag held: one that asks for it, or one behind all of these."""
        firsts = [s.lower for t in self.tests if (s := span_of(t, self.loop.var)) is not None and s.lower is not None]

        def outcome(test: Expr) -> bool | None:
            if test in self.tests:
                return is_asked or test not in self.last
            if test in held:
                return True
            span = span_of(test, self.loop.var)
            is_before = span is not None and span.upper is not None and any(is_empty(f, span.upper) for f in firsts)
            return False if is_before else None

        return outcome

    def is_steady(self, *exprs: Expr) -> bool:
        """Whether expressions are the same at all steps."""
        return not any(mentions(e, self.loop.var) or any(r.tensor in self.written for r in reads(e)) for e in exprs)

    def is_at_all_steps(self, scope: Scope) -> bool:
        """Whether a place inside the loop is reached by the same points at all steps, or at all up to some last one of each."""
        for around in scope.path:
            if isinstance(around, Fact):
                for test in operands_of(around.condition, "and"):
                    span = span_of(test, self.loop.var) if around.outcome else None
                    is_last = span is not None and span.lower is None and span.upper is not None and self.is_steady(span.upper)
                    if not (self.is_steady(test) or is_last):
                        return False
            elif not self.is_steady(around.lower, around.upper):
                return False
        return True


def _find_flags(body: Body, loop: Loop, written: frozenset[str], tests: tuple[Expr, ...] = ()) -> Iterator[_Flag]:
    for node in body:
        match node:
            case If():
                yield from _find_flags(node.body, loop, written, (*tests, *operands_of(node.condition, "and")))
                yield from _find_flags(node.orelse, loop, written, (*tests, *_behind_first(node.condition, loop)))
            case Store(name, after, value):
                spans = {t: span for t in tests if (span := span_of(t, loop.var)) is not None}
                if len(spans) < len(set(tests)) or any((s.lower is None) == (s.upper is None) for s in spans.values()):
                    continue
                last = tuple(t for t in tests if spans[t].upper is not None)
                for operand in operands_of(value, "or"):
                    if isinstance(operand, Read) and operand.tensor == name and _moves_on(operand, after, loop.var):
                        yield _Flag(loop, written, name, operand.subscripts, after, tests, last)


def _behind_first(condition: Expr, loop: Loop) -> tuple[Expr, ...]:
    """The test that holds behind the first steps of a loop, where a condition holds at these alone."""
    span = span_of(condition, loop.var)
    is_first = span is not None and (span.lower is None or span.lower == loop.lower)
    return (ge(Index(loop.var), span.upper),) if span is not None and span.upper is not None and is_first else ()


def _moves_on(read: Read, after: tuple[Expr, ...], var: str) -> bool:
    """Whether the next step reads what this one stored `after`."""
    return with_values(read, {var: Index(var) + 1}).subscripts == tuple(map(simplify, after))


def _unswitch(flag: _Flag, own: set[str], nest: LoopNest) -> Loop | None:
    """The loop with other bodies for steps before which the flag held; None where loops would be left in these that do
    more than fill rows with a constant."""
    rest = _find_rest(flag, own, nest)
    if rest is None:
        return None
    checks = _repeated_checks(flag)
    has_checks = any(node in checks for node in walk_nodes(rest) if isinstance(node, Guard))
    rest = _without(rest, lambda node: isinstance(node, Guard) and node in checks)
    copies = _copies_in_turn(rest, flag)
    final = _without(rest, lambda node: isinstance(node, Store) and node.buffer in copies)
    if any(loops_in(_without(final, lambda node: isinstance(node, Store) and isinstance(node.value, Const)))):
        return None
    first = choose(flag.held(int(has_checks)), rest, flag.loop.body)
    back = max(copies.values(), default=1) - 1
    distances = [growth(e, flag.loop.var) for e in flag.after] if back else []
    if None not in distances and any(distances):  # else nothing is copied, or what the flag was steps ago is gone
        first = choose(flag.held(back, back), final, first)
    return replace(flag.loop, body=first)


def _find_rest(flag: _Flag, own: set[str], nest: LoopNest) -> Body | None:
    """What a step has to do where the flag held before it; None where that is not known."""
    loop = flag.loop
    if sum(node is loop for node in walk_nodes(nest.body)) > 1:
        return None  # what the other one reads would not count
    held, holds = Read(flag.buffer, flag.before), Read(flag.buffer, flag.after)
    nodes = assume(loop.body, flag.known(True, held))
    place = next((k for k, n in enumerate(nodes) if isinstance(n, Store) and n.buffer == flag.buffer), None)
    if place is None or len(flag.last) > 1 or sum(w.buffer == flag.buffer for w in writes_in(nodes)) > 1:
        return None
    kept = () if flag.before == flag.after else (Store(flag.buffer, flag.after, Const(True, BOOL)),)
    rest = (*nodes[:place], *kept, *assume(nodes[place + 1 :], hold([holds])))
    # Steps behind the last that asks for the flag run as a whole, with what they find; the first of them may ask for the last.
    behind = assume(loop.body, flag.known(False)) if flag.last else ()
    others = replace_nodes(nest.body, {id(loop): ()})
    needed = {flag.buffer} | {r.tensor for r in reads_in((*nest.preconditions, *others))} | read_for_places(behind)
    ends = [s.upper for t in flag.last if (s := span_of(t, loop.var)) is not None and s.upper is not None]
    if all(difference(loop.upper, end) == 1 for end in ends):
        behind = assume(behind, hold([held]))
    dead = {w.buffer for w in writes_in(rest)} & own - needed

    def is_dead(node: Node) -> bool:
        return isinstance(node, Prefetch) or (isinstance(node, (Store, Update)) and node.buffer in dead)

    while found := dead & {r.tensor for r in reads_in((*_without(rest, is_dead), *_without(behind, is_dead)))}:
        dead -= found
    return _without(rest, is_dead)


def _repeated_checks(flag: _Flag) -> set[Guard]:
    """Checks of the same things at each step: the first one has asked them."""
    found = [(node, scope) for node, scope in nodes_in(flag.loop.body) if isinstance(node, Guard)]
    other = {node for node, scope in found if not (flag.is_steady(*node.expressions) and flag.is_at_all_steps(scope))}
    return {node for node, _ in found} - other


def _copies_in_turn(rest: Body, flag: _Flag) -> dict[str, int]:
    """The buffers that finished steps only copy from one place to the next, the same points at all of them, with their number
    of places."""
    windows: dict[str, set[int]] = {}
    for access in accesses_in(rest):
        if access.is_write:
            n_places = _window(access.node, flag) if flag.is_at_all_steps(access.scope) else 0
            windows.setdefault(access.buffer, set()).add(n_places)
    return {name: max(own) for name, own in windows.items() if 0 not in own}


def _window(node: Node, flag: _Flag) -> int:
    """In how many places in turn the value lies that a step copies from one to the next; 0 for anything else."""
    if not isinstance(node, Store) or not isinstance(node.value, Read) or node.value.tensor != node.buffer:
        return 0
    moving = [e for e in node.subscripts if not flag.is_steady(e)]
    match moving:
        case [Call("mod", (place, Const(int(window), _)))] if _moves_on(node.value, node.subscripts, flag.loop.var):
            return window if growth(place, flag.loop.var) is not None else 0
    return 0


def _without(body: Body, is_left_out: Callable[[Node], bool]) -> Body:
    return rewrite_nodes(body, lambda node, _: () if is_left_out(node) else None)
