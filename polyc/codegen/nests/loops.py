"""isl AST → LoopNest: instantiate statements, fold storage, give loops the kinds that the marks say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import gcd

from polyc.code_limits import MAX_READS
from polyc.codegen.nests.buffers import make_buffers
from polyc.codegen.nests.collapse import collapse_parallel
from polyc.codegen.nests.preconditions import translate_checks
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    eq,
    int_const,
    lt,
    mentions,
    operands_of,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.intervals import Interval, range_of
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Store, Update, do_bounds_depend
from polyc.ir.segments import SEGMENT_SIZES
from polyc.ir.signature import Signature
from polyc.ir.simplify import constant_of, least_constant, simplify
from polyc.ir.walk import Body, walk_nodes
from polyc.poly import isl
from polyc.poly.isl import AstNode, Schedule, expr_of_ast
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding, Panel
from polyc.poly.tree import Mark, parse_mark
from polyc.records import dataclass, replace

MAX_EXPANSION = 9
"""Vectors into which a short vector loop is expanded instead of becoming a loop."""

MAX_EXPANDED_STORES = 24
"""Statements, each for a vector, that stand in such a loop when it is expanded: many of them gain nothing by it."""

_LINEAR = ("add", "sub", "mul", "neg", "mod")


@dataclass(frozen=True, slots=True)
class Values:
    """What is known of an enclosing loop variable: its least and greatest value, and a number of which all are multiples."""

    interval: Interval
    multiple: int = 1


def translate_schedule(
    scop: Scop,
    schedule: Schedule,
    storage: Mapping[str, Folding],
    signature: Signature,
    aliases: tuple[tuple[str, str], ...],
    groups: Mapping[str, tuple[tuple[int, ...], ...]],
    reassociate: bool,
    lanes: int = 1,
) -> LoopNest:
    """Schedule tree → LoopNest, before the passes of `pipeline`.  `aliases`: pairs (output, input) of user's names that share
    memory.  `groups`: by argument, which of the caller's dimensions each dimension of the program stands for.
    `reassociate`: whether quotients may differ in the last bit.  `lanes`: points that one step of
    the checks of arguments takes."""
    translator = _Translator(scop, storage)
    segments = scop.ranges.segments
    sizes = [*signature.sizes, *(name for name, _ in signature.defined_sizes), *(SEGMENT_SIZES if segments else ())]
    # isl names loops c0, c1, … where no parameter has that name, and sizes that are numbers here are no parameters.
    taken = isl.set_space([name for name in sizes if name.startswith("c")], None, ()).params()
    build = isl.AstBuild.from_context(scop.context.align_params(taken))
    ast = build.node_from_schedule(schedule)
    body = tuple(translator.translate(ast, {}, {}))
    buffers = make_buffers(scop, storage, signature, aliases, groups)
    parameters = list(sizes)
    for array in (a.memory for a in signature.arrays):
        parameters += [f"{array.name}.stride{d}" for d in range(len(array.shape))]
    checks = scop.ranges.data_checks
    guards = (*translator.guards, *(c.message for c in checks))
    first = translate_checks(checks, len(translator.guards), lanes, parameters)
    return LoopNest(signature.name, tuple(parameters), buffers, body, guards, (), (), first, not reassociate, segments)


class _Translator:
    def __init__(self, scop: Scop, storage: Mapping[str, Folding]) -> None:
        self.scop, self.storage = scop, storage
        self.guards: list[str] = []
        self.first_guards: dict[str, int] = {}
        for s in scop.statements:
            self.first_guards[s.name] = len(self.guards)
            self.guards += [g.message for g in s.guards]

    def translate(self, node: AstNode, ranges: dict[str, Values], marks: dict[str, Mark]) -> list[Node]:
        kind: object = node.get_type()
        if kind == isl.ast_node_type.mark:
            parsed = parse_mark(node.mark_get_id().get_name())
            inside = node.mark_get_node()
            if parsed is not None:
                marks = {**marks, parsed[0]: parsed[1]}
                if parsed[1].kind == "parallel" and (sections := _sections_of(inside)):
                    return [_run_sections(parsed[0], [self.translate(n, ranges, marks) for n in sections])]
            return self.translate(inside, ranges, marks)
        if kind == isl.ast_node_type.block:
            children = node.block_get_children()
            return [n for c in range(children.n_ast_node()) for n in self.translate(children.get_at(c), ranges, marks)]
        if kind == isl.AST_IF:
            condition = expr_of_ast(node.if_get_cond(), set(ranges))
            body = self.translate(node.if_get_then_node(), ranges, marks)
            orelse = self.translate(node.if_get_else_node(), ranges, marks) if node.if_has_else() else []
            return [If(condition, tuple(body), tuple(orelse))]
        if kind == isl.AST_FOR:
            return self._loop(node, ranges, marks)
        if kind == isl.ast_node_type.user:
            return self._instance(node, ranges)
        raise AssertionError(f"AST node {kind}")

    def _loop(self, node: AstNode, ranges: dict[str, Values], marks: dict[str, Mark]) -> list[Node]:
        var = node.for_get_iterator().get_id().get_name()
        variables = set(ranges)
        lower = simplify(expr_of_ast(node.for_get_init(), variables))
        step, upper = 1, simplify(lower + 1)
        if not node.for_is_degenerate():
            step = int(node.for_get_inc().get_val().to_python())
            upper = _exclusive_bound(expr_of_ast(node.for_get_cond(), variables | {var}))
        known = values_of(lower, upper, step, ranges)
        body = tuple(self.translate(node.for_get_body(), {**ranges, var: known}, {k: v for k, v in marks.items() if k != var}))
        mark = marks.get(var)
        guards, body = _hoist_guards(body, var, lower, upper)
        return [*guards, self._mark_loop(Loop(var, lower, upper, step, "serial", body), mark)]

    def _mark_loop(self, loop: Loop, mark: Mark | None) -> Loop:
        step, first, end = loop.step, constant_of(loop.lower), least_constant(loop.upper)
        if mark is None or mark.kind == "section":
            return loop
        trip = end if first == 0 and step == 1 else None
        if first is None and step == 1 and mark.kind in ("unroll", "vector"):
            limit = 32 if mark.kind == "unroll" else MAX_EXPANSION * mark.lanes
            loop = replace(loop, tile=end if end is not None and end <= limit else None)
        match mark.kind:
            case "parallel":
                return collapse_parallel(replace(loop, kind="parallel", least_part=mark.least_part, is_uneven=mark.is_uneven))
            case "pipeline":
                return replace(loop, kind="parallel", stream=f"c{int(loop.var[1:]) + mark.columns}")
            case "apart":
                return replace(loop, is_apart=True)
            case "unroll":
                return replace(loop, kind="unroll", max_trip=trip) if trip is not None and trip <= 32 else loop
            case "scan":
                return replace(loop, kind="scan", lanes=mark.lanes) if step == 1 else loop
            case "vector":
                if step != 1:
                    return loop
                short = trip is not None and trip <= MAX_EXPANSION * mark.lanes
                if trip is not None and short and trip > mark.lanes:  # accumulators of updates want their loops expanded
                    stores = [node for node in walk_nodes(loop.body) if isinstance(node, Store)]
                    short = -(-trip // mark.lanes) * len(stores) <= MAX_EXPANDED_STORES
                    short &= all(len(set(reads(s.value))) <= MAX_READS for s in stores)
                return replace(
                    loop,
                    kind="vector",
                    lanes=mark.lanes,
                    interleave=1 if short else mark.interleave,
                    max_trip=trip if short else None,
                )

    def _instance(self, node: AstNode, ranges: dict[str, Values]) -> list[Node]:
        call = node.user_get_expr()
        name = call.get_op_arg(0).get_id().get_name()
        args = [expr_of_ast(call.get_op_arg(i), set(ranges)) for i in range(1, call.get_op_n_arg())]
        s = self.scop.statement(name.removeprefix("init_"))
        is_init = name.startswith("init_")
        values = dict(zip(s.elements if is_init else s.indices, map(simplify, args), strict=True))
        place = tuple(Index(e) for e in s.elements) if is_init else s.subscripts
        buffer, subscripts = self._fold(s.target, tuple(self._expression(e, values, ranges) for e in place), ranges)
        value = self._expression(s.init if is_init else s.value, values, ranges)
        if is_init:  # accumulation into the caller's own array finds it in place
            return [] if value == Read(buffer, subscripts) else [Store(buffer, subscripts, value, name)]
        guards = (Guard(n, g.value, g.bound, g.condition) for n, g in enumerate(s.guards, self.first_guards[s.name]))
        nodes: list[Node] = [g.map(lambda e: self._expression(e, values, ranges)) for g in guards]
        test, value = (value.condition, value.then) if s.writes_parts and isinstance(value, Select) else (None, value)
        written = Store(buffer, subscripts, value, name) if s.op is None else Update(buffer, subscripts, s.op, value, name)
        return [*nodes, written if test is None else If(test, (written,))]

    def _expression(self, expr: Expr | None, values: dict[str, Expr], ranges: dict[str, Values]) -> Expr:
        assert expr is not None

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Read):
                buffer, subscripts = self._fold(node.tensor, node.subscripts, ranges)
                return Read(buffer, subscripts)
            return None

        return rewrite(substitute(expr, values), rule)

    def _fold(self, tensor: str, subscripts: tuple[Expr, ...], ranges: dict[str, Values]) -> tuple[str, tuple[Expr, ...]]:
        folding = self.storage[tensor]
        subscripts = self.scop.place_in_memory(tensor, subscripts)
        if folding.panel is not None:
            return folding.buffer, _fold_panel([simplify(e) for e in subscripts], folding.panel, ranges)
        return folding.buffer, tuple(
            simplify(e) if m is None else fold_index(simplify(e), m, ranges)
            for e, m in zip(subscripts, folding.moduli, strict=True)
        )


def _sections_of(node: AstNode) -> list[AstNode]:
    """The nodes of a block of sections, the iterations of a parallel loop over their numbers, of which isl makes no loop."""
    kind: object = node.get_type()
    if kind != isl.ast_node_type.block:
        return []
    children = node.block_get_children()
    found = [children.get_at(c) for c in range(children.n_ast_node())]
    kinds: list[object] = [n.get_type() for n in found]
    is_marked = all(k == isl.ast_node_type.mark for k in kinds)
    return found if is_marked and all(n.mark_get_id().get_name().startswith("section") for n in found) else []


def _run_sections(var: str, sections: list[list[Node]]) -> Loop:
    *others, last = map(tuple, sections)
    body: Body = last
    for k, section in reversed(list(enumerate(others))):
        body = (If(eq(Index(var), k), section, body),)
    return Loop(var, int_const(0), int_const(len(sections)), 1, "parallel", body)


def _hoist_guards(body: Body, var: str, lower: Expr, upper: Expr) -> tuple[list[Node], Body]:
    """Guards at the start of a loop that do not move with it go in front of it (and hold only if it runs at all).

    Those at the start of a loop inside that is first in the body go in front as a loop of guards."""
    runs = simplify(lt(lower, upper))
    hoisted: list[Node] = []
    kept: list[Node] = []
    for n, node in enumerate(body):
        match node:
            case Guard() if _is_fixed(node, var):
                hoisted.append(_guard_under(node, runs))
            case Guard():
                kept.append(node)
            case Loop() if not do_bounds_depend((node,), var):
                leading = takewhile(lambda inner: isinstance(inner, Guard), node.body)
                front = [g for g in leading if isinstance(g, Guard) and _is_fixed(g, var)]
                if front:
                    checks = tuple(_guard_under(g, runs) for g in front)
                    hoisted.append(replace(node, kind="serial", max_trip=None, body=checks))
                    node = replace(node, body=tuple(m for m in node.body if m not in front))
                return hoisted, (*kept, *((node,) if node.body else ()), *body[n + 1 :])
            case _:
                return hoisted, (*kept, *body[n:])
    return hoisted, tuple(kept)


def _guard_under(guard: Guard, runs: Expr) -> Guard:
    if isinstance(runs, Const) and runs.value:
        return guard
    return replace(guard, condition=runs if guard.condition is None else all_hold((runs, guard.condition)))


def _is_fixed(guard: Guard, var: str) -> bool:
    return not any(mentions(e, var) for e in guard.expressions)


def fold_index(expr: Expr, modulus: int, ranges: Mapping[str, Values]) -> Expr:
    """``expr mod modulus``, without the division where tile loops only add multiples of `modulus`."""
    if modulus == 1:
        return int_const(0)
    moving = index_coefficients(expr) or {}
    dropped = [v for v, c in moving.items() if v in ranges and c * ranges[v].multiple % modulus == 0]
    expr = simplify(substitute(expr, dict.fromkeys(dropped, int_const(0)))) if moving else expr
    low, high = range_of(expr, {name: known.interval for name, known in ranges.items()})
    if isinstance(expr, Const):
        return int_const(int(expr.value) % modulus)
    return expr if low is not None and high is not None and 0 <= low <= high < modulus else expr % modulus


def _fold_panel(subscripts: list[Expr], panel: Panel, ranges: Mapping[str, Values]) -> tuple[Expr, ...]:
    """Subscripts of the cell of an element in panels: number of the panel, the other coordinates, place in the panel."""
    element = subscripts.pop(panel.dimension)
    place = fold_index(element, panel.size, ranges)
    is_exact = not (isinstance(place, Call) and place.op == "mod")
    start = simplify(element - place) if is_exact else element
    return (simplify(start // panel.size), *subscripts, place)


def values_of(lower: Expr, upper: Expr, step: int, around: Mapping[str, Values]) -> Values:
    """What is known of the variable of a loop, from what is known of those around it."""
    first, end = constant_of(lower), least_constant(upper)
    multiple = gcd(step, _multiple_of(lower, step, around))
    start = 0 if first is None and multiple == step else first
    last = end if end is None else end - 1 if start is None else start + (end - 1 - start) // step * step
    least = max((int(e.value) for e in operands_of(lower, "max") if isinstance(e, Const)), default=None)
    return Values((least, last), multiple)


def _multiple_of(expr: Expr, step: int, around: Mapping[str, Values]) -> int:
    """A number of which all values of an expression are multiples, `step` if that is one."""
    coefficients = index_coefficients(expr)
    if coefficients is not None:
        rest = constant_of(simplify(substitute(expr, dict.fromkeys(coefficients, int_const(0)))))
        return (
            1 if rest is None else gcd(*(c * around[v].multiple if v in around else c for v, c in coefficients.items()), rest)
        )
    if isinstance(expr, Call) and expr.op in ("min", "max"):
        return gcd(*(_multiple_of(a, step, around) for a in expr.args))
    if not all(isinstance(e, (Index, Const)) or (isinstance(e, Call) and e.op in _LINEAR) for e in walk(expr)):
        return 1
    remainders = [e for e in walk(expr) if isinstance(e, Call) and e.op == "mod"]
    others = [e for e in remainders if not isinstance(n := e.args[1], Const) or n.value % step]
    if any(inner in remainders for e in others for inner in walk(e.args[0])):
        return 1

    def congruent(e: Expr) -> Expr | None:  # modulo `step`
        match e:
            case Call("mod", (a, Const(n))) if n > 0 and n % step == 0:
                return a
        return None

    return step if simplify(rewrite(expr, congruent) % step) == int_const(0) else 1


def _exclusive_bound(condition: Expr) -> Expr:
    """``c <= e`` → ``e + 1``, ``c < e`` → ``e``."""
    assert isinstance(condition, Call) and condition.op in ("le", "lt")
    return simplify(condition.args[1]) if condition.op == "lt" else _plus_one(condition.args[1])


def _plus_one(expr: Expr) -> Expr:
    if isinstance(expr, Call) and expr.op in ("min", "max"):
        return simplify(Call(expr.op, tuple(_plus_one(a) for a in expr.args)))
    return simplify(expr + 1)
