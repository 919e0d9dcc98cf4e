"""How many copies of a loop are written one behind the other."""

from __future__ import annotations

from polyc.code_limits import MAX_STRIDE, MAX_UNROLLED, MAX_UNROLLED_OPERATIONS
from polyc.codegen.emission.context import Context, State, byte_offset
from polyc.codegen.emission.linear import index_names
from polyc.codegen.emission.windows import has_window
from polyc.codegen.functions.polynomials import INLINE
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, Select, reads, walk
from polyc.ir.loops import Loop, Node, Store, Update
from polyc.ir.walk import node_expressions
from polyc.machine import Machine

_INLINE_OPERATIONS = 30
"""Operations of a function that is computed inline, about."""


def reads_between_lanes(state: State, ctx: Context, loop: Loop) -> bool:
    """Whether copies of the loop read what lies between the lanes of each other."""

    def stride(read: Read, name: str) -> int | None:
        buffer = state.by_name[read.tensor]
        env = {n: Val("%", "i64") for s in read.subscripts for n in index_names(s)}
        linear = byte_offset(Context(env), buffer, read.subscripts)
        bytes = linear.get((Index(name),), 0)
        is_known = all(atom == Index(name) or name not in index_names(atom) for atoms in linear for atom in atoms)
        return bytes // buffer.dtype.itemsize if is_known and bytes % buffer.dtype.itemsize == 0 else None

    return has_window(loop, stride, MAX_STRIDE)


def count_unrolled(loop: Loop, target: Machine) -> int:
    """Iterations of a loop over accumulators to put into one: all of a short loop, two of a long one.

    Single elements between ends that data gives are few, or else have several chains: whether their number is odd would be one
    more branch that nobody can foretell.

    A tile that fills the registers is never unrolled: loads that move up between the iterations would spill it (windows of
    3 over 28 accumulators ran at 60 % of their speed).  So would half of the registers where products take one as well, or
    where each row is one vector: there LLVM lets every multiply-add overwrite a broadcast."""
    updates = _count_updates(loop.body)
    trip = None
    if isinstance(loop.upper, Const) and isinstance(loop.lower, Const):
        trip = int(loop.upper.value) - int(loop.lower.value)
    held = _count_updates(loop.body, with_serial=False)
    room = target.n_registers // 2 - (not target.has_fma or _count_vectors(loop.body) == 1)
    if updates is None or held is None or held > room:
        return 1
    is_short = trip is not None and 1 < trip * updates <= MAX_UNROLLED and loop.step == 1
    if trip is not None and is_short and trip * updates * _count_operations(loop.body) <= MAX_UNROLLED_OPERATIONS:
        return trip
    if any(map(reads, (loop.lower, loop.upper))) and not any(isinstance(n, Loop) for n in loop.body):
        return 1
    is_innermost = all(n.is_expanded for n in loop.body if isinstance(n, Loop))
    return 2 if is_innermost and (trip is None or trip >= 16) else 1


def count_steps(loop: Loop) -> int:
    """Iterations to put into one of a loop that replaces single elements step by step: all of a short loop, else one.

    Such elements stay in registers, and a step of few operations (a bit of a checksum) takes no longer than counting."""
    if not all(isinstance(node, Store) and all(isinstance(s, Const) for s in node.subscripts) for node in loop.body):
        return 1
    if not isinstance(loop.upper, Const) or not isinstance(loop.lower, Const) or loop.step != 1:
        return 1
    trip = int(loop.upper.value) - int(loop.lower.value)
    n_stores = trip * len(loop.body)
    return (
        trip
        if trip > 1 and n_stores <= MAX_UNROLLED and n_stores * _count_operations(loop.body) <= MAX_UNROLLED_OPERATIONS
        else 1
    )


def count_accumulators(loop: Loop) -> int | None:
    """Vectors that a loop over accumulators holds; None where that is not known."""
    held = _count_updates(loop.body, with_serial=False)
    is_open = loop.kind == "vector" and not loop.is_expanded
    return None if held is None else held * (loop.interleave if is_open else 1)


def tests_border(loop: Loop) -> bool:
    """Whether a selection inside depends on the variable of the loop (the border of a padded read)."""

    def is_test(expr: Expr) -> bool:
        tested = expr.condition if isinstance(expr, Select) else expr.read if isinstance(expr, Pad) else None
        return tested is not None and loop.var in index_names(tested)

    def visit(body: tuple[Node, ...]) -> bool:
        return any(
            any(is_test(e) for root in node_expressions(node) for e in walk(root))
            or (isinstance(node, Loop) and visit(node.body))
            for node in body
        )

    return visit(loop.body)


def _count_vectors(body: tuple[Node, ...]) -> int:
    """The most vectors in one vector loop of `body`."""
    found = 0
    for node in body:
        if isinstance(node, Loop):
            own = -(-node.max_trip // node.lanes) if node.kind == "vector" and node.max_trip is not None else 0
            found = max(found, own, _count_vectors(node.body))
    return found


def _count_operations(body: tuple[Node, ...]) -> int:
    """Operations of the longest update or store inside."""
    inner = [_count_operations(node.body) for node in body if isinstance(node, Loop)]
    nodes = [walk(node.value) for node in body if isinstance(node, (Update, Store))]
    return max([*inner, *(sum(_INLINE_OPERATIONS if is_inline(n) else 1 for n in expr) for expr in nodes)], default=0)


def is_inline(node: Expr) -> bool:
    """Whether a node is a function that is computed inline."""
    return isinstance(node, Call) and node.op in (*INLINE, "exp_below")


def _count_updates(body: tuple[Node, ...], with_serial: bool = True) -> int | None:
    """Updates that one run of `body` makes; None where that is not known, or where it does something else as well.

    Without serial loops each of them counts once: that is how many accumulators there are."""
    total = 0
    for node in body:
        if isinstance(node, Update):
            total += 1
        elif isinstance(node, Loop):
            inner = _count_updates(node.body, with_serial)
            trip = node.max_trip if node.is_expanded else None
            if trip is None and not with_serial:
                trip = 1
            elif trip is None and isinstance(node.upper, Const) and isinstance(node.lower, Const):
                trip = int(node.upper.value) - int(node.lower.value)
            if inner is None or trip is None:
                return None
            total += inner * -(-trip // node.lanes)
        else:
            return None
    return total
