"""Well-formedness of LoopNests: what the interpreter and LLVM emission may rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from polyc.diagnostics import Diagnostic, InternalError
from polyc.ir.expr import MONOIDS, Call, Const, Expr, Index, Read, Size, type_of, walk
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.types import BOOL, I64, DType
from polyc.ir.verify import check_expression
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class _Context:
    types: dict[str, DType]
    ranks: dict[str, int]
    parameters: frozenset[str]
    variables: tuple[str, ...] = ()
    is_parallel: bool = False

    def inside(self, loop: Loop) -> _Context:
        return _Context(
            self.types,
            self.ranks,
            self.parameters,
            (*self.variables, loop.var),
            self.is_parallel or loop.kind == "parallel",
        )


def verify_loops(nest: LoopNest) -> None:
    """Raise InternalError (``internal-invalid-loops``) with one diagnostic per fault; return silently where there is none.

    Checked: buffers (argument positions 0, 1, …, ranks, register tiles of constant shape), names and element types of all
    expressions, loop kinds against their documented conditions, no shadowed loop variables, no nested parallel loops.
    """
    known = frozenset((*nest.parameters, *(f"{name}.offset" for name in nest.offsets)))
    context = _Context({b.name: b.dtype for b in nest.buffers}, {b.name: len(b.shape) for b in nest.buffers}, known)
    problems = [*_check_buffers(nest, context)]
    for node in (*nest.preconditions, *nest.body):
        problems += _check_node(node, context)
    if problems:
        raise InternalError(*(Diagnostic("internal-invalid-loops", f"{nest.name}: {text}") for text in problems))


def _check_buffers(nest: LoopNest, context: _Context) -> Iterator[str]:
    for name in nest.offsets:
        if not any(b.name == name and b.space == "argument" for b in nest.buffers):
            yield f"the offset of {name} is asked for, which is no argument"
    for names in (nest.parameters, [b.name for b in nest.buffers]):  # a number that is a size is both
        yield from (f"{name} is declared twice" for name, count in Counter(names).items() if count > 1)
    arguments = [b for b in nest.buffers if b.space == "argument"]
    if list(nest.buffers[: len(arguments)]) != arguments:
        yield "argument buffers do not come first"
    if [b.position for b in arguments] != list(range(len(arguments))):
        yield f"argument positions are {[b.position for b in arguments]}"
    workspace = [b for b in nest.buffers if b.space in ("shared", "thread")]
    for b in nest.buffers:
        if b.space != "argument" and b.position is not None:
            yield f"{b.space} buffer {b.name} has an argument position"
        if len(b.shape) != len(b.strides):
            yield f"{b.name} has {len(b.shape)} extents and {len(b.strides)} strides"
        if b.space == "register" and not all(isinstance(e, Const) for e in b.shape):
            yield f"register buffer {b.name} has a shape that is not constant"
        if b.memory and not any(o.name == b.memory and o.space == b.space and not o.memory for o in workspace):
            yield f"{b.name} lies in {b.memory}, which is no other buffer of that space with memory of its own"
        for other in b.may_alias:
            if other not in context.ranks:
                yield f"{b.name} may alias the unknown buffer {other}"
        for expr in (*b.shape, *b.strides):
            if any(isinstance(node, (Index, Read)) for node in walk(expr)):
                yield f"shape or stride of {b.name} depends on more than parameters"
            else:
                yield from _check_expr(expr, I64, context, f"shape or stride of {b.name}")


def _check_expr(expr: Expr, wanted: DType, context: _Context, what: str) -> Iterator[str]:
    names = []
    for node in walk(expr):
        match node:
            case Index() if node.name not in context.variables:
                names.append(f"{what} has {node.name}, which is no loop variable around it")
            case Size() if node.name not in context.parameters:
                names.append(f"{what} has the unknown parameter {node.name}")
            case Read() if node.tensor not in context.ranks:
                names.append(f"{what} reads the unknown buffer {node.tensor}")
            case Read() if len(node.subscripts) != context.ranks[node.tensor]:
                names.append(f"{what} reads {node.tensor} with {len(node.subscripts)} subscripts")
    yield from names
    if not names:
        faults = [text for text, _ in check_expression(expr, context.types, wanted, what, None)]
        yield from faults or _check_storage(expr, context, what)


def _check_storage(expr: Expr, context: _Context, what: str) -> Iterator[str]:
    """16-bit floats are moved and converted, never computed with."""
    for node in walk(expr):
        if isinstance(node, Call) and type_of(node.args[0], context.types).is_storage:
            yield f"{what} computes with {type_of(node.args[0], context.types)} ({node.op})"


def _check_node(node: Node, context: _Context) -> Iterator[str]:
    match node:
        case Store() | Update():
            what = f"a store to {node.buffer}"
            if node.buffer not in context.ranks:
                yield f"unknown buffer {node.buffer} is written"
                return
            if len(node.subscripts) != context.ranks[node.buffer]:
                yield f"{what} has {len(node.subscripts)} subscripts"
            if isinstance(node, Update) and node.op not in MONOIDS:
                yield f"{what} updates with {node.op}, which is no monoid"
            if isinstance(node, Update) and context.types[node.buffer].is_storage:
                yield f"{what} updates elements of {context.types[node.buffer]}"
            for sub in node.subscripts:
                yield from _check_expr(sub, I64, context, f"a subscript of {what}")
            yield from _check_expr(node.value, context.types[node.buffer], context, what)
        case Guard():
            what = f"check {node.check}"
            yield from _check_expr(node.value, I64, context, what)
            yield from _check_expr(node.bound, I64, context, what)
            if node.condition is not None:
                yield from _check_expr(node.condition, BOOL, context, what)
            for shown in node.shown or ():
                yield from _check_expr(shown, I64, context, what)
        case Prefetch():
            if len(node.subscripts) != context.ranks.get(node.buffer):
                yield f"a prefetch of {node.buffer} has {len(node.subscripts)} subscripts"
            for sub in node.subscripts:
                yield from _check_expr(sub, I64, context, f"a subscript of a prefetch of {node.buffer}")
        case If():
            yield from _check_expr(node.condition, BOOL, context, "a condition")
            for child in (*node.body, *node.orelse):
                yield from _check_node(child, context)
        case Loop():
            yield from _check_loop(node, context)
            for child in (n for start in node.initial for n in start.nest):
                yield from _check_node(child, context)
            for child in node.body:
                yield from _check_node(child, context.inside(node))
        case _:
            assert_never(node)


def _check_loop(loop: Loop, context: _Context) -> Iterator[str]:
    what = f"loop {loop.var}"
    if loop.var in context.variables or loop.var in context.parameters:
        yield f"{what} hides another variable of that name"
    for bound in (loop.lower, loop.upper):
        yield from _check_expr(bound, I64, context, f"a bound of {what}")
    if loop.step < 1:
        yield f"{what} has step {loop.step}"
    if loop.kind == "parallel" and context.is_parallel:
        yield f"parallel {what} stands inside another parallel loop"
    if loop.stream is not None and loop.kind != "parallel":
        yield f"{what} has columns along {loop.stream}, but is not parallel"
    if loop.kind == "vector" and (loop.step != 1 or loop.lanes < 1 or loop.interleave < 1):
        yield f"vector {what} has step {loop.step}, {loop.lanes} lanes, {loop.interleave} interleaved"
    if loop.kind == "scan" and (loop.step != 1 or loop.lanes < 1):
        yield f"scan {what} has step {loop.step}, {loop.lanes} lanes"
    if loop.kind == "unroll" and (loop.max_trip is None or loop.step != 1 or loop.lower != Const(0, I64)):
        yield f"unrolled {what} needs a known trip count, lower bound 0 and step 1"
    if loop.parallel_if is not None:
        yield from _check_expr(loop.parallel_if, BOOL, context, f"the condition of {what}")
    for name in loop.registers:
        if name not in context.ranks:
            yield f"{what} holds the unknown buffer {name} in registers"
