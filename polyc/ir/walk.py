"""Walking and rewriting loop nests: every node with what is around it, and bodies with some nodes replaced.

before  ``for i { if (i < n) { A[i] = 0 } }``, a rule that replaces the store where the scope holds ``i < n``
after   ``for i { if (i < n) { stream A[i] = 0 } }``
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from polyc.ir.expr import Expr, Read, rewrite, substitute
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify, simplify_value
from polyc.records import dataclass, replace

Body = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """That a condition holds (`outcome`), or that it does not."""

    condition: Expr
    outcome: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """What is around a node, outermost first: loops, and what the branches say in whose arms it stands."""

    path: tuple[Loop | Fact, ...] = ()

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(step for step in self.path if isinstance(step, Loop))

    @property
    def loops_in_order(self) -> tuple[Loop, ...]:
        """The innermost loops, as far as it is known which iteration is the next: a thread begins a parallel loop anywhere."""
        found = self.loops
        first = max((n for n, loop in enumerate(found) if loop.kind != "serial"), default=0)
        return found[first:]

    def holds(self, condition: Expr) -> bool:
        return Fact(condition, True) in self.path

    def inside(self, loop: Loop) -> Scope:
        return Scope((*self.path, loop))

    def under(self, condition: Expr, outcome: bool) -> Scope:
        return Scope((*self.path, Fact(condition, outcome)))


TOP = Scope()

Rule = Callable[[Node, Scope], Node | Body | None]
"""What stands in the place of a node; None: the node itself, with the nodes inside of it rewritten."""


def rewrite_nodes(body: Body, rule: Rule, scope: Scope = TOP) -> Body:
    """`body` by `rule`, outermost nodes first; the very same tuple where nothing changes.

    Loops and branches of which nothing is left are dropped.  Nests of initial values stay as they are."""
    result: list[Node] = []
    for node in body:
        made = rule(node, scope)
        if made is None:
            made = rewrite_inside(node, rule, scope)
            if made is not node and _is_empty(made):
                continue
        result += made if isinstance(made, tuple) else (made,)
    new = tuple(result)
    return body if _is_same(body, new) else new


def _is_empty(node: Node) -> bool:
    return isinstance(node, (If, Loop)) and not node.body and not (isinstance(node, If) and node.orelse)


def rewrite_inside(node: Node, rule: Rule, scope: Scope = TOP) -> Node:
    """`node`, which stands in `scope`, with the nodes inside of it rewritten."""
    match node:
        case If():
            then = rewrite_nodes(node.body, rule, scope.under(node.condition, True))
            other = rewrite_nodes(node.orelse, rule, scope.under(node.condition, False))
            return node if then is node.body and other is node.orelse else If(node.condition, then, other)
        case Loop():
            body = rewrite_nodes(node.body, rule, scope.inside(node))
            return node if body is node.body else replace(node, body=body)
    return node


def rewrite_nest(nest: LoopNest, rule: Rule) -> LoopNest:
    """The entry point with its body rewritten; itself where nothing changes."""
    body = rewrite_nodes(nest.body, rule)
    return nest if body is nest.body else replace(nest, body=body)


def replace_nodes(body: Body, new: Mapping[int, Node | Body]) -> Body:
    """`body` with others in the place of the very nodes that have these `id`."""
    return rewrite_nodes(body, lambda node, _: new.get(id(node)))


def map_bodies(node: Node, change: Callable[[Body], Body]) -> Node:
    """`node` with each body in it changed: that of a loop, both of a branch; the very same node where nothing changes."""
    match node:
        case If():
            then, other = change(node.body), change(node.orelse)
            return node if _is_same(node.body, then) and _is_same(node.orelse, other) else If(node.condition, then, other)
        case Loop():
            body = change(node.body)
            return node if _is_same(node.body, body) else replace(node, body=body)
    return node


def _is_same(old: Body, new: Body) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def nodes_in(body: Body, scope: Scope = TOP) -> Iterator[tuple[Node, Scope]]:
    """All nodes with their scopes, a node before those inside of it; without initial values, which `walk_nodes` has."""
    for node in body:
        yield node, scope
        match node:
            case If():
                yield from nodes_in(node.body, scope.under(node.condition, True))
                yield from nodes_in(node.orelse, scope.under(node.condition, False))
            case Loop():
                yield from nodes_in(node.body, scope.inside(node))


def perfect_nest(node: Node) -> tuple[tuple[Loop, ...], Body]:
    """The loops of which each is all that the one around it holds, outermost first, and the body of the innermost."""
    loops: list[Loop] = []
    body: Body = (node,)
    while len(body) == 1 and isinstance(inside := body[0], Loop):
        loops.append(inside)
        body = inside.body
    return tuple(loops), body


def make_nest(loops: Sequence[Loop], body: Body) -> Body:
    """These loops, outermost first, around a body."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def loops_in(body: Body) -> Iterator[Loop]:
    """The loops of a body and all loops inside of them, without those of initial values."""
    stack = [*body[::-1]]
    while stack:
        node = stack.pop()
        if isinstance(node, Loop):
            yield node
            stack += node.body[::-1]
        elif isinstance(node, If):
            stack += (node.body + node.orelse)[::-1]


def walk_nodes(body: Body) -> Iterator[Node]:
    """The nodes of a body and all nodes inside of them, before what follows them."""
    stack = [*body[::-1]]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Loop):
            stack += node.body[::-1]
            for start in node.initial[::-1]:
                stack += start.nest[::-1]
        elif isinstance(node, If):
            stack += node.orelse[::-1]
            stack += node.body[::-1]


def node_expressions(node: Node) -> Iterator[Expr]:
    """The expressions of a node itself, not of its body."""
    match node:
        case Store() | Update():
            yield from node.subscripts
            yield node.value
        case Guard():
            yield from node.expressions
        case Prefetch():
            yield from node.subscripts
        case If():
            yield node.condition
        case Loop():
            yield from (node.lower, node.upper)


def substitute_nodes(body: Body, values: Mapping[str, Expr]) -> Body:
    """The nodes where variables have these values."""

    def change(expr: Expr) -> Expr:
        return substitute(expr, values)

    return map_nodes(body, lambda e: simplify(change(e)), stored=lambda e: simplify_value(change(e)))


def map_nodes(
    body: Body,
    value: Callable[[Expr], Expr],
    place: Callable[[str, tuple[Expr, ...]], tuple[Expr, ...]] = lambda buffer, subscripts: subscripts,
    stored: Callable[[Expr], Expr] | None = None,
) -> Body:
    """`value` of all expressions (`stored` of those that are stored, if given), and then `place` of subscripts that are written
    or asked for."""
    stored = stored or value

    def placed(node: Store | Update | Prefetch) -> tuple[Expr, ...]:
        return place(node.buffer, tuple(map(value, node.subscripts)))

    def visit(node: Node) -> Node:
        match node:
            case Store() | Update():
                return replace(node, subscripts=placed(node), value=stored(node.value))
            case Guard():
                return node.map(value)
            case Prefetch():
                return replace(node, subscripts=placed(node))
            case If():
                return replace(node, condition=value(node.condition), body=inside(node.body), orelse=inside(node.orelse))
            case Loop():
                initial = tuple(replace(i, value=stored(i.value), nest=inside(i.nest)) for i in node.initial)
                return replace(node, lower=value(node.lower), upper=value(node.upper), body=inside(node.body), initial=initial)

    def inside(nodes: Body) -> Body:
        return tuple(map(visit, nodes))

    return inside(body)


def map_places(body: Body, place: Callable[[str, tuple[Expr, ...]], tuple[Expr, ...]]) -> Body:
    """The nodes with `place` of the subscripts of all that they read, write or ask for."""

    def value(expr: Expr) -> Expr:
        return rewrite(expr, lambda e: replace(e, subscripts=place(e.tensor, e.subscripts)) if isinstance(e, Read) else None)

    return map_nodes(body, value, place)
