"""A loop nest as a Python function of NumPy arrays, one iteration after the other.

Subscripts, bounds and everything else made of loop variables and parameters is computed in Python integers, elements in NumPy
scalars of their own type.  Every access is checked against the shape of its array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, assert_never

import numpy as np

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, type_of, walk
from polyc.ir.halves import narrow, widen
from polyc.ir.loop_buffers import fail, poison
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.loops_by_rows import Place, Row, find_rows
from polyc.ir.numeric import APPLY, REDUCE
from polyc.ir.types import BOOL, I64, DType

Failure = tuple[int, int, int]
"""A run-time check that did not hold: its number, the value and the bound."""

_LOOPS_PER_FUNCTION = 12
_MAX_HEIGHT = 40
"""Operators inside each other in one Python expression; taller ones are computed in steps."""
_FEWEST = 6
"""Iterations from which on rows are faster than elements one after the other."""


@dataclass(slots=True)
class _Writer:
    """The Python text under construction and the objects its names stand for."""

    types: dict[str, DType]
    buffers: dict[str, Buffer]
    thread_only: dict[int, tuple[str, ...]]
    """By identity of a parallel loop: thread buffers that are used inside it and nowhere else."""
    lines: list[str] = field(default_factory=list)
    globals: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    counter: int = 0
    n_loops: int = 0
    """Loops around the text being written."""

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, value: Any) -> str:
        name = self.fresh("k")
        self.globals[name] = value
        return name


def translate_loops(nest: LoopNest) -> Callable[[Mapping[str, np.ndarray], Mapping[str, int], list[Failure]], None]:
    """The nest as a Python function of its buffers by name, its parameters, and the list that receives failed checks."""
    writer = _Writer({b.name: b.dtype for b in nest.buffers}, {b.name: b for b in nest.buffers}, _find_thread_only(nest))
    writer.globals |= {"_fail_access": _fail_access, "_poison": poison, "_floordiv": _floordiv, "_mod": _mod, "_wrap": _wrap}
    writer.globals["_combine"] = _combine
    writer.emit(0, "def run(arrays, sizes, failures):")
    for k, buffer in enumerate(nest.buffers):
        writer.variables["b " + buffer.name] = f"b{k}"
        writer.emit(1, f"b{k} = arrays[{buffer.name!r}]")
        for d in range(len(buffer.shape)):
            writer.emit(1, f"b{k}_{d} = b{k}.shape[{d}]")
    for k, name in enumerate((*nest.parameters, *(f"{name}.offset" for name in nest.offsets))):
        writer.variables["p " + name] = f"p{k}"
        writer.emit(1, f"p{k} = sizes[{name!r}]")
    if nest.preconditions:
        _write_body(writer, nest.preconditions, 1)
        writer.emit(1, "if failures: return")
    _write_body(writer, nest.body, 1)
    # one function for the whole nest: its variables are locals, the fastest names that Python has
    exec(compile("\n".join(writer.lines), f"<loops of {nest.name}>", "exec"), writer.globals)
    function: Callable[[Mapping[str, np.ndarray], Mapping[str, int], list[Failure]], None] = writer.globals["run"]
    return function


def _buffers_in(node: Node) -> Iterator[str]:
    exprs: list[Expr] = []
    match node:
        case Store() | Update():
            yield node.buffer
            exprs = [node.value, *node.subscripts]
        case Guard():
            exprs = list(node.expressions)
        case Prefetch():
            exprs = list(node.subscripts)
        case If():
            exprs = [node.condition]
            for child in (*node.body, *node.orelse):
                yield from _buffers_in(child)
        case Loop():
            exprs = [node.lower, node.upper]
            for child in (*(n for i in node.initial for n in i.nest), *node.body):
                yield from _buffers_in(child)
    for expr in exprs:
        yield from (n.tensor for n in walk(expr) if isinstance(n, Read))


def _find_thread_only(nest: LoopNest) -> dict[int, tuple[str, ...]]:
    private = {b.name for b in nest.buffers if b.space in ("thread", "register")}
    users: dict[str, set[int]] = {name: set() for name in private}
    loops: list[int] = []

    def visit(node: Node, around: int) -> None:
        match node:
            case Loop():
                inside = id(node) if node.kind == "parallel" and not around else around
                if inside != around:
                    loops.append(inside)
                for child in (*(n for i in node.initial for n in i.nest), *node.body):
                    visit(child, inside)
            case If():
                for child in (*node.body, *node.orelse):
                    visit(child, around)
            case _:
                for name in _buffers_in(node):
                    if name in users:
                        users[name].add(around)

    for node in nest.body:
        visit(node, 0)
    return {loop: tuple(sorted(n for n in private if users[n] == {loop})) for loop in loops}


def _write_body(w: _Writer, nodes: tuple[Node, ...], depth: int) -> None:
    for node in nodes:
        _write_node(w, node, depth)
    if not nodes:
        w.emit(depth, "pass")


def _write_node(w: _Writer, node: Node, depth: int) -> None:
    match node:
        case Store() | Update():
            _write_store(w, node, depth)
        case Guard():
            value, bound = w.fresh("t"), w.fresh("t")
            if node.condition is not None:
                w.emit(depth, f"if {_expr(w, node.condition)}:")
                depth += 1
            w.emit(depth, f"{value}, {bound} = int({_expr(w, node.value)}), int({_expr(w, node.bound)})")
            shown = [value, bound] if node.shown is None else [f"int({_expr(w, e)})" for e in node.shown]
            w.emit(depth, f"if not 0 <= {value} < {bound}: failures.append(({node.check}, {', '.join(shown)}))")
        case Prefetch():
            for sub in node.subscripts:
                w.emit(depth, _expr(w, sub))
        case If():
            w.emit(depth, f"if {_expr(w, node.condition)}:")
            _write_body(w, node.body, depth + 1)
            if node.orelse:
                w.emit(depth, "else:")
                _write_body(w, node.orelse, depth + 1)
        case Loop():
            for start in node.initial:
                _write_body(w, start.nest, depth)
            lower, upper = _expr(w, node.lower), _expr(w, node.upper)
            rows = None if w.thread_only.get(id(node)) or not _is_low(node) else find_rows(node, w.buffers, _is_host)
            if rows is not None:
                _write_rows(w, node, rows, depth)
                depth += 1
            outer = w.variables.get("i " + node.var)
            variable = w.fresh("i")
            w.n_loops += 1
            is_split = w.n_loops % _LOOPS_PER_FUNCTION == 0
            if is_split:  # a function of its own: Python limits how many loops may stand inside each other
                function = w.fresh("f")
                w.emit(depth, f"def {function}():")
                depth += 1
            w.emit(depth, f"for {variable} in range({lower}, {upper}, {node.step}):")
            w.variables["i " + node.var] = variable
            for name in w.thread_only.get(id(node), ()):
                w.emit(depth + 1, f"_poison({w.variables['b ' + name]})")
            _write_body(w, node.body, depth + 1)
            w.n_loops -= 1
            if is_split:
                w.emit(depth - 1, f"{function}()")
            if outer is None:
                del w.variables["i " + node.var]
            else:
                w.variables["i " + node.var] = outer
        case _:
            assert_never(node)


def _write_store(w: _Writer, node: Store | Update, depth: int) -> None:
    buffer = w.variables["b " + node.buffer]
    names = []
    for d, sub in enumerate(node.subscripts):
        name = w.fresh("s")
        w.emit(depth, f"{name} = {_expr(w, sub)}")
        w.emit(depth, f"if not 0 <= {name} < {buffer}_{d}: _fail_access('write', {node.buffer!r}, {d}, {name}, {buffer}_{d})")
        names.append(name)
    place = f"{buffer}[{', '.join(names) or '()'}]"
    value = _element(w, _compute_in_steps(w, node.value, depth))
    if isinstance(node, Update):
        value = _apply(w, node.op, [place, value], w.types[node.buffer] == BOOL)
    w.emit(depth, f"{place} = {value}")


def _is_low(loop: Loop) -> bool:
    """Whether no value in the body has to be computed in steps."""
    return all(_height(node.value) <= _MAX_HEIGHT for node in loop.body if isinstance(node, (Store, Update)))


def _write_rows(w: _Writer, loop: Loop, rows: Mapping[Place, Row], depth: int) -> None:
    """The loop as operations on whole rows, where it is long and they lie inside; what follows stands in the `else`."""
    first, count, is_whole = w.fresh("t"), w.fresh("t"), w.fresh("t")
    w.emit(depth, f"{first} = {_expr(w, loop.lower)}")
    w.emit(depth, f"{count} = {_expr(w, loop.upper)} - {first}")
    w.emit(depth, f"{is_whole} = {count} >= {_FEWEST}")
    w.emit(depth, f"if {is_whole}:")
    outer = w.variables.get("i " + loop.var)
    w.variables["i " + loop.var] = first
    places, inside = dict[Place, str](), list[str]()
    for place, row in rows.items():
        buffer, parts = w.variables["b " + place[0]], list[str]()
        for d, sub in enumerate(place[1]):
            begin, end = w.fresh("s"), w.fresh("s")
            w.emit(depth + 1, f"{begin} = {_expr(w, sub)}")
            if d == row.dimension:
                w.emit(depth + 1, f"{end} = {begin} + {row.step} * ({count} - 1) + 1")
            inside.append(f"0 <= {begin} and {end} <= {buffer}_{d}" if d == row.dimension else f"0 <= {begin} < {buffer}_{d}")
            parts.append(f"{begin}:{end}:{row.step}" if d == row.dimension else begin)
        places[place] = f"{buffer}[{', '.join(parts) or '()'}]"
    w.emit(depth + 1, f"{is_whole} = {' and '.join(inside) or 'True'}")
    w.emit(depth, f"if {is_whole}:")
    for node in loop.body:
        assert isinstance(node, (Store, Update))
        target = node.buffer, node.subscripts
        value = _row(w, node.value, places)
        if isinstance(node, Update) and rows[target].dimension is None:
            value = f"_combine({w.constant(REDUCE[node.op])}, {places[target]}, {value})"
        elif isinstance(node, Update):
            value = _apply(w, node.op, [places[target], value], w.types[node.buffer] == BOOL, _ON_ROWS)
        w.emit(depth + 1, f"{places[target]} = {value}")
    del w.variables["i " + loop.var]
    if outer is not None:
        w.variables["i " + loop.var] = outer
    w.emit(depth, "else:")


def _row(w: _Writer, expr: Expr, places: Mapping[Place, str]) -> str:
    """A value in all iterations: a row, or a scalar that is the same in each."""
    match expr:
        case Read():
            return places[expr.tensor, expr.subscripts]
        case Cast():
            return f"{w.constant(_make_cast(expr.dtype))}({_row(w, expr.value, places)})"
        case Call() if not _is_host(expr):
            is_bool = type_of(expr.args[0], w.types) == BOOL
            return _apply(w, expr.op, [_row(w, a, places) for a in expr.args], is_bool, _ON_ROWS)
        case _:
            return _element(w, expr)


def _height(expr: Expr) -> int:
    return 1 + max(map(_height, expr.args), default=0) if isinstance(expr, Call) else 0


def _compute_in_steps(w: _Writer, expr: Expr, depth: int) -> Expr:
    """The expression with its tall operands computed into variables before it (which a read of rank 0 then stands for)."""
    if not isinstance(expr, Call) or _height(expr) <= _MAX_HEIGHT:
        return expr
    args = []
    for operand in expr.args:
        operand = _compute_in_steps(w, operand, depth)
        if _height(operand) >= _MAX_HEIGHT:
            name = w.fresh("v")
            w.emit(depth, f"{name} = {_element(w, operand)}")
            w.types["step " + name] = type_of(operand, w.types)
            w.variables["b step " + name] = name
            operand = Read("step " + name, ())
        args.append(operand)
    return replace(expr, args=tuple(args))


# --- Expressions -----------------------------------------------------------------------------------------------------


def _is_host(expr: Expr) -> bool:
    """Made of loop variables, parameters and 64-bit constants alone: computed in Python integers."""
    match expr:
        case Const():
            return expr.dtype == I64
        case Index() | Size():
            return True
        case Call():
            is_host = expr.op in _PYTHON and all(_is_host(a) for a in expr.args)
            # Python's own bools would add up to 2
            return is_host and not (expr.op in ("add", "mul") and type_of(expr.args[0], {}) == BOOL)
        case Select():
            return _is_host(expr.condition) and _is_host(expr.then) and _is_host(expr.other)
        case _:
            return False


_PYTHON: dict[str, str] = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "floordiv": "_floordiv({}, {})",
    "mod": "_mod({}, {})",
    "max": "max({}, {})",
    "min": "min({}, {})",
    "neg": "(-{})",
    "abs": "abs({})",
    "lt": "({} < {})",
    "le": "({} <= {})",
    "gt": "({} > {})",
    "ge": "({} >= {})",
    "eq": "({} == {})",
    "ne": "({} != {})",
    "and": "({} and {})",
    "or": "({} or {})",
    "not": "(not {})",
}
_DIRECT = frozenset("add sub mul lt le gt ge eq ne and or not".split())
"""Operators that Python's own spelling computes right on NumPy scalars."""
_ON_ROWS = _DIRECT - {"and", "or", "not"}


def _element(w: _Writer, expr: Expr) -> str:
    """The expression as an element value: host integers wrap to 64 bits."""
    return f"_wrap({_expr(w, expr)})" if _is_host(expr) and type_of(expr, w.types) == I64 else _expr(w, expr)


def _expr(w: _Writer, expr: Expr) -> str:
    match expr:
        case Const():
            if expr.dtype == I64:
                return f"({int(expr.value)})"
            literal = int(expr.value) if expr.dtype.is_integer else expr.value
            if expr.dtype.is_storage:
                return w.constant(narrow(np.float32(literal), expr.dtype)[()])
            return w.constant(np.asarray(literal, expr.dtype.numpy)[()])
        case Index():
            return w.variables["i " + expr.name]
        case Size():
            return w.variables["p " + expr.name]
        case Read():
            return _read(w, expr)
        case Pad():
            subscripts = [w.fresh("s") for _ in expr.read.subscripts]
            buffer = w.variables["b " + expr.read.tensor]
            inside = [
                f"0 <= ({name} := {_expr(w, sub)}) < {buffer}_{d}"
                for d, (name, sub) in enumerate(zip(subscripts, expr.read.subscripts, strict=True))
            ]
            place = f"{buffer}[{', '.join(subscripts) or '()'}]"
            return f"({place} if {' and '.join(inside) or 'True'} else {_element(w, expr.value)})"
        case Call():
            if _is_host(expr):
                return _PYTHON[expr.op].format(*(_expr(w, a) for a in expr.args))
            is_bool = type_of(expr.args[0], w.types) == BOOL
            return _apply(w, expr.op, [_element(w, a) for a in expr.args], is_bool)
        case Select():
            arm = _expr if _is_host(expr) else _element
            return f"({arm(w, expr.then)} if {_expr(w, expr.condition)} else {arm(w, expr.other)})"
        case Cast():
            return f"{w.constant(_make_cast(expr.dtype))}({_element(w, expr.value)})"
        case _:
            assert_never(expr)


def _read(w: _Writer, read: Read) -> str:
    """``buffer[s0, s1]``, each subscript checked where it is computed."""
    buffer = w.variables["b " + read.tensor]
    if read.tensor not in w.buffers:
        return buffer  # a step computed before
    parts = []
    for d, sub in enumerate(read.subscripts):
        if isinstance(sub, (Index, Size)):
            name, first = _expr(w, sub), _expr(w, sub)
        else:
            name = w.fresh("s")
            first = f"({name} := {_expr(w, sub)})"
        parts.append(
            f"{name} if 0 <= {first} < {buffer}_{d} else _fail_access('read', {read.tensor!r}, {d}, {name}, {buffer}_{d})"
        )
    return f"{buffer}[{', '.join(parts) or '()'}]"


def _apply(w: _Writer, op: str, operands: list[str], is_bool: bool, direct: frozenset[str] = _DIRECT) -> str:
    if op in direct and not (is_bool and op in ("add", "mul")):
        return _PYTHON[op].format(*operands)
    return f"{w.constant(_make_scalar(op))}({', '.join(operands)})"


def _make_scalar(op: str) -> Callable[..., Any]:
    """The operator on NumPy scalars, giving a NumPy scalar (never an array of rank 0)."""
    function = APPLY[op]
    if isinstance(function, np.ufunc):
        return function

    def apply(*args: Any) -> Any:
        return np.asarray(function(*args))[()]

    return apply


def _make_cast(dtype: DType) -> Callable[[Any], Any]:
    target = dtype.numpy

    def cast(value: Any) -> Any:
        if dtype.is_storage:
            return narrow(value, dtype)[()]
        return widen(np.asarray(value)).astype(target)[()]

    return cast


def _fail_access(kind: str, buffer: str, dimension: int, value: int, bound: int) -> NoReturn:
    fail(f"a {kind} of {buffer} has subscript {dimension} at {value}, outside 0 to {bound - 1}")


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


def _combine(op: np.ufunc, start: Any, row: np.ndarray) -> Any:
    """`start` and the elements of `row`, combined one after the other."""
    row = np.array(row)
    row[0] = op(start, row[0])
    return op.accumulate(row, dtype=row.dtype)[-1]


def _wrap(value: int) -> Any:
    return np.int64((value + (1 << 63)) % (1 << 64) - (1 << 63))
