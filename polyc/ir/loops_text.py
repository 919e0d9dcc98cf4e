"""Loop nests as text: indented pseudo-C, to be read by people, and by `loops_reader`."""

from __future__ import annotations

from typing import assert_never

from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.text import ASSIGNMENT, format_expr, format_name


def format_loops(nest: LoopNest) -> str:
    """The text of the stage ``.loops``: indented pseudo-C."""
    lines = [f"nest {format_name(nest.name)}({', '.join(map(format_name, nest.parameters))})"]
    for fold in nest.folds:
        first, second = format_name(fold.first), format_name(fold.second)
        tests = " and ".join(f"{format_name(a)} == {second} * {format_expr(b, is_operand=True)}" for a, b in fold.strides)
        tests += " and there is one thread" if fold.alone else ""
        lines.append(f"  {first}, {second} = 1, {first} * {second} if {tests}")
    lines += ["  " + _buffer(b) for b in nest.buffers]
    if nest.preconditions:
        lines += ["  first {", *_body(nest.preconditions, 1), "  }"]
    for node in nest.body:
        lines += _node(node, 1)
    return "\n".join(lines) + "\n"


def _buffer(b: Buffer) -> str:
    shape, strides = (", ".join(format_expr(e) for e in part) for part in (b.shape, b.strides))
    place = "" if b.position is None else f" at data[{b.position}]"
    alias = f" may alias {', '.join(map(format_name, b.may_alias))}" if b.may_alias else ""
    memory = f" in {format_name(b.memory)}" if b.memory else ""
    return f"{b.space} {format_name(b.name)}: {b.dtype}[{shape}] strides ({strides}){place}{alias}{memory}"


def _node(node: Node, depth: int) -> list[str]:
    pad = "  " * depth
    match node:
        case Store() | Update():
            operator = "=" if isinstance(node, Store) else ASSIGNMENT[node.op]
            target = f"{format_name(node.buffer)}[{', '.join(format_expr(e) for e in node.subscripts)}]"
            comment = f"  // {node.statement}" if node.statement else ""
            hint = "stream " if isinstance(node, Store) and node.streamed else ""
            return [f"{pad}{hint}{target} {operator} {format_expr(node.value)};{comment}"]
        case Guard():
            under = "" if node.condition is None else f" if {format_expr(node.condition)}"
            value, bound = (format_expr(e, is_operand=True) for e in (node.value, node.bound))
            shown = "" if node.shown is None else " shows " + ", ".join(format_expr(e) for e in node.shown)
            return [f"{pad}check {node.check}: 0 <= {value} < {bound}{under}{shown};"]
        case Prefetch():
            place = f"{format_name(node.buffer)}[{', '.join(format_expr(e) for e in node.subscripts)}]"
            return [f"{pad}prefetch {place}, {node.size} bytes{' to L2' if node.level == 2 else ''};"]
        case If():
            lines = [f"{pad}if ({format_expr(node.condition)}) {{", *_body(node.body, depth)]
            if node.orelse:
                lines += [f"{pad}}} else {{", *_body(node.orelse, depth)]
            return [*lines, f"{pad}}}"]
        case Loop():
            return [f"{pad}{_loop_head(node)} {{", *_body(node.body, depth), f"{pad}}}"]
        case _:
            assert_never(node)


def _body(nodes: tuple[Node, ...], depth: int) -> list[str]:
    return [line for node in nodes for line in _node(node, depth + 1)]


def _loop_head(loop: Loop) -> str:
    var = format_name(loop.var)
    step = f"{var}++" if loop.step == 1 else f"{var} += {loop.step}"
    kind: str = "" if loop.kind == "serial" else loop.kind
    details = []
    if loop.kind == "vector":
        details.append(f"lanes {loop.lanes}" + (f" x {loop.interleave}" if loop.interleave > 1 else ""))
    if loop.kind == "scan":
        details.append(f"lanes {loop.lanes}")
    if loop.max_trip is not None:
        details.append(f"at most {loop.max_trip}")
    if loop.tile is not None:
        details.append(f"of {loop.tile}")
    if loop.registers:
        starts = {i.buffer: f" from {format_expr(i.value)}" for i in loop.initial}
        details.append("registers " + " ".join(format_name(name) + starts.get(name, "") for name in loop.registers))
    if loop.stream is not None:
        details.append(f"in columns along {format_name(loop.stream)}")
    if loop.least_part:
        details.append(f"parts of {loop.least_part}" + (" that lie apart" if loop.is_uneven else ""))
    if loop.parallel_if is not None:
        details.append(f"if {format_expr(loop.parallel_if)}")
    kind += f"({', '.join(details)}) " if details else (" " if kind else "")
    return f"{kind}for ({var} = {format_expr(loop.lower)}; {var} < {format_expr(loop.upper)}; {step})"
