"""LoopNest → LLVM IR text.  Translation only: kinds, lanes, registers and buffers were decided by the scheduler.

The entry point loads addresses and parameters, lays out the workspace and calls an internal function whose buffer
arguments are noalias; `statements` writes what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyc.codegen.emission.context import WORKSPACES, Context, State
from polyc.codegen.emission.expressions import eval_expr
from polyc.codegen.emission.lines import has_aligned_rows
from polyc.codegen.emission.openmp import argument_text
from polyc.codegen.emission.statements import emit_body
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Module, Val, float_val, int_val
from polyc.ir.expr import Const, Expr, Select, Size, int_const, maximum, reads, walk
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.simplify import simplify_int
from polyc.ir.versions import cheapest
from polyc.ir.walk import node_expressions, walk_nodes
from polyc.machine import BASELINE, Machine
from polyc.machine.memory import LINE
from polyc.records import replace

KEEPING = "!polyc.keeping = !{}"
"""Line of a module with loops that read what earlier iterations stored, or sums in registers that read under conditions: LLVM
is to look for values to keep in registers, from one iteration to the next and instead of spilling them."""


def emit_llvm(nest: LoopNest, target: Machine, others: Sequence[LoopNest] = (), costs: Sequence[Expr] = ()) -> str:
    """The text of a module with ``<name>`` and ``<name>_workspace``.  Deterministic.

    `others`: versions of `nest` (which is number 0) with the same parameters and arguments.  A call takes the one of least
    cost."""
    module = Module(target.mask_bits)
    if others:
        versions = [replace(v, name=f"{nest.name}.v{n}") for n, v in enumerate((nest, *others))]
        _emit_choices(nest, [version.name for version in versions], costs, module)
        for version in versions:
            _emit_entry(version, target, module, "internal ")
            _emit_workspace(version, module, "internal ")
    else:
        _emit_entry(nest, target, module)
        _emit_workspace(nest, module)
    attributes = (
        f'nounwind "prefer-vector-width"="{target.vector_bits}" "min-legal-vector-width"="{target.vector_bits}" '
        '"no-trapping-math"="true"'
    )
    if any(_has_recurrence(node) or _sums_under_conditions(node) for version in (nest, *others) for node in version.body):
        module.metadata.append(KEEPING)
    return module.as_text(target.triple, attributes)


def _emit_choices(nest: LoopNest, versions: Sequence[str], costs: Sequence[Expr], module: Module) -> None:
    """The two entry points: each computes what every version costs and calls its counterpart of one.  `versions`: the
    functions that run them."""
    # Both must choose alike, whatever the number of threads they are told.
    folds = tuple(fold for fold in nest.folds if not fold.alone)
    nest = replace(nest, folds=folds)
    entry = "ptr %data, ptr %sizes, ptr %workspace, ptr %error, i32 %threads"
    for suffix, result, arguments in (("", "i32", entry), ("_workspace", "i64", "ptr %sizes, i32 %threads")):
        fn = Function(module, f'define {result} @"{nest.name}{suffix}"({arguments})')
        version = eval_expr(_bare_state(fn, nest, _load_parameters(fn, nest)), Context(), cheapest(costs))
        for n, called in enumerate(versions):
            rest = fn.new_block("rest") if n + 1 < len(versions) else None
            if rest is not None:
                taken = fn.new_block("taken")
                fn.branch_if(fn.compare("icmp eq", version, int_val(n)), taken, rest)
                fn.place(taken)
            value = fn.effect_value(f'call {result} @"{called}{suffix}"({arguments})', result)
            fn.current.terminator = f"ret {value}"
            if rest is not None:
                fn.place(rest)


def _emit_entry(nest: LoopNest, target: Machine, module: Module, linkage: str = "") -> None:
    header = f'define {linkage}i32 @"{nest.name}"(ptr %data, ptr %sizes, ptr %workspace, ptr %error, i32 %threads)'
    fn = Function(module, header)
    params = _load_parameters(fn, nest)
    buffers: dict[str, Val] = {}
    for buffer in nest.buffers:
        if buffer.space == "argument":
            place = fn.pure(f"getelementptr i8, ptr %data, i64 {8 * (buffer.position or 0)}", "ptr")
            buffers[buffer.name] = fn.effect_value(f"load ptr, {place}, align 8", "ptr")
    for name in nest.offsets:
        address = fn.convert("ptrtoint", buffers[name], "i64")
        params[f"{name}.offset"] = fn.binary("and", address, int_val(LINE - 1))
    offsets, _, per_thread = _layout_workspace(fn, nest, params)
    workspace = Val("%workspace", "ptr")
    buffers |= {name: vectors.offset_pointer(fn, workspace, offset) for name, offset in offsets.items()}
    hidden = {"error": Val("%error", "ptr"), "threads": Val("%threads", "i32"), "per_thread": per_thread}

    values = {**buffers, **{f"size {n}": v for n, v in params.items()}, **{f"hidden {n}": v for n, v in hidden.items()}}
    arguments = {key: Val(f"%a{n}", value.type) for n, (key, value) in enumerate(values.items())}

    streamed = frozenset(n.buffer for n in walk_nodes(nest.body) if isinstance(n, Store) and n.streamed)

    def make_state(version: LoopNest) -> State:
        version = _alias_places(version)
        return State(
            version,
            target,
            module,
            fn,
            {name: arguments[f"size {name}"] for name in params},
            {b.name: arguments[b.place] for b in version.buffers if b.place in buffers},
            {name: arguments[f"hidden {name}"] for name in hidden},
            {b.name: b.dtype for b in version.buffers},
            {b.name: b for b in version.buffers},
            eval_expr,
            streamed,
        )

    guards = has_guards((*nest.preconditions, *nest.body))
    if guards:
        fn.effect("store i64 -1, ptr %error, align 8")

    def call(version: LoopNest) -> None:
        operands = [argument_text(make_state(version), key, value) for key, value in values.items()]
        fn.effect(f'call void @"{version.name}.body"({", ".join(operands)})')

    versions = [nest]
    unit = _unit_version(nest)
    if unit is None:
        call(nest)
    else:
        versions.append(unit)
        condition: Val | None = None
        for general, special in zip(nest.buffers, unit.buffers, strict=True):
            if general is not special:
                stride = special.strides[-1]
                assert isinstance(stride, Const)
                is_unit = fn.compare("icmp eq", params[_stride_name(general)], int_val(int(stride.value)))
                condition = fn.and_(condition, is_unit)
        assert condition is not None
        then, other, after = fn.new_block("unit"), fn.new_block("general"), fn.new_block("done")
        fn.branch_if(condition, then, other)
        for block, version in ((then, unit), (other, nest)):
            fn.place(block)
            call(version)
            fn.branch(after)
        fn.place(after)
    if guards:
        check = fn.effect_value("load i64, ptr %error, align 8", "i64")
        code = fn.convert("trunc", fn.binary("add", check, int_val(1)), "i32")
        fn.current.terminator = f"ret {code}"
    else:
        fn.current.terminator = "ret i32 0"

    for version in versions:
        state = make_state(version)
        texts = [argument_text(state, key, value) for key, value in arguments.items()]
        state.fn = Function(module, f'define internal void @"{version.name}.body"({", ".join(texts)}) noinline')
        if version.preconditions:
            _emit_preconditions(state, version)
        emit_body(state, Context(), version.body)
        vectors.finish_streams(state.fn)
        state.fn.current.terminator = "ret void"


def _emit_preconditions(state: State, nest: LoopNest) -> None:
    """The checks that run first, and the way out where one has failed."""
    fn = state.fn
    emit_body(state, Context(), nest.preconditions)
    failed, rest = fn.new_block("failed"), fn.new_block("checked")
    check = fn.effect_value(f"load i64, {state.hidden['error']}, align 8", "i64")
    fn.branch_if(fn.compare("icmp sge", check, int_val(0)), failed, rest)
    fn.place(failed)
    fn.current.terminator = "ret void"
    fn.place(rest)


def _stride_name(buffer: Buffer) -> str:
    last = buffer.strides[-1]
    assert isinstance(last, Size)
    return last.name


def _unit_version(nest: LoopNest) -> LoopNest | None:
    """The nest for arrays whose last stride is one element, where nothing is known of any array's strides: code that is
    compiled ahead of time then runs at full speed on ordinary arrays and still takes all others."""
    arguments = [b for b in nest.buffers if b.space == "argument" and b.strides]
    if not arguments or not all(isinstance(b.strides[-1], Size) for b in arguments):
        return None
    buffers = tuple(
        replace(b, strides=(*b.strides[:-1], int_const(b.dtype.itemsize))) if b in arguments else b for b in nest.buffers
    )
    return replace(nest, name=f"{nest.name}.unit", buffers=buffers)


def _emit_workspace(nest: LoopNest, module: Module, linkage: str = "") -> None:
    fn = Function(module, f'define {linkage}i64 @"{nest.name}_workspace"(ptr %sizes, i32 %threads)')
    params = _load_parameters(fn, nest)
    _, shared, per_thread = _layout_workspace(fn, nest, params)
    threads = fn.convert("sext", fn.intrinsic("smax", Val("%threads", "i32"), int_val(1, "i32")), "i64")
    total = fn.binary("add", shared, fn.binary("mul", threads, per_thread))
    if any(b.space in WORKSPACES for b in nest.buffers):  # room for a last vector that sticks out
        total = fn.binary("add", total, int_val(LINE))
    estimate = _estimate_bytes(fn, nest, params)
    if estimate is not None:
        is_huge = fn.compare("fcmp ogt", estimate, float_val(2.0**48, "double"))
        total = fn.select(is_huge, int_val(_TOO_MANY_BYTES), total)
    fn.current.terminator = f"ret {total}"


_TOO_MANY_BYTES = 1 << 62
"""What the workspace function says where 64 bits cannot count the bytes: more than any machine has."""


def _estimate_bytes(fn: Function, nest: LoopNest, params: dict[str, Val]) -> Val | None:
    """About the bytes of one thread's workspace, as a double, which does not wrap around; None where they are few."""
    state = _bare_state(fn, nest, params)
    total: Val | None = None
    for buffer in nest.buffers:
        known = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
        is_small = len(known) == len(buffer.shape) and math.prod(known) < 1 << 32
        if buffer.space not in ("shared", "thread") or is_small:
            continue
        product = float_val(buffer.dtype.itemsize, "double")
        for extent in buffer.shape:
            product = fn.binary("fmul", product, fn.convert("sitofp", eval_expr(state, Context(), extent), "double"))
        total = product if total is None else fn.binary("fadd", total, product)
    return total


def _load_parameters(fn: Function, nest: LoopNest) -> dict[str, Val]:
    params = {}
    for n, name in enumerate(nest.parameters):
        place = fn.pure(f"getelementptr i8, ptr %sizes, i64 {8 * n}", "ptr")
        params[name] = fn.effect_value(f"load i64, {place}, align 8", "i64")
    for fold in nest.folds:
        condition: Val | None = None
        for outer, step in fold.strides:
            inner = params[step.name] if isinstance(step, Size) else eval_expr(_bare_state(fn, nest, params), Context(), step)
            is_dense = fn.compare("icmp eq", params[outer], fn.binary("mul", params[fold.second], inner))
            condition = fn.and_(condition, is_dense)
        if fold.alone:
            condition = fn.and_(condition, fn.compare("icmp sle", Val("%threads", "i32"), int_val(1, "i32")))
        if condition is not None:
            product = fn.binary("mul", params[fold.first], params[fold.second])
            params[fold.second] = fn.select(condition, product, params[fold.second])
            params[fold.first] = fn.select(condition, int_val(1), params[fold.first])
    return params


def _alias_places(nest: LoopNest) -> LoopNest:
    """The nest in which buffers that take turns with one piece of memory say so."""
    places: dict[str, list[str]] = {}
    for b in nest.buffers:
        places.setdefault(b.place, []).append(b.name)
    if len(places) == len(nest.buffers):
        return nest
    others = {b.name: [n for n in places[b.place] if n != b.name] for b in nest.buffers}
    return replace(nest, buffers=tuple(replace(b, may_alias=(*b.may_alias, *others[b.name])) for b in nest.buffers))


def _bare_state(fn: Function, nest: LoopNest, params: dict[str, Val]) -> State:
    """For expressions over parameters alone."""
    return State(nest, BASELINE, fn.module, fn, params, {}, {}, {}, {}, eval_expr)


def _layout_workspace(fn: Function, nest: LoopNest, params: dict[str, Val]) -> tuple[dict[str, Val], Val, Val]:
    """Offsets of the memory of workspace buffers (thread buffers: of thread 0), bytes of the shared ones, bytes per thread."""
    state = _bare_state(fn, nest, params)
    offsets: dict[str, Val] = {}
    # In front of the first buffer there is room for a line as there is behind the last: windows load whole lines.
    total = int_val(LINE if any(has_aligned_rows(b) for b in nest.buffers) else 0)
    shared = total
    for space in WORKSPACES:
        for buffer in nest.buffers:
            if buffer.space != space or buffer.memory:
                continue
            size = _buffer_bytes(state, buffer)
            for other in nest.buffers:
                if other.memory == buffer.name:
                    size = fn.intrinsic("smax", size, _buffer_bytes(state, other))
            offsets[buffer.name], total = total, _add(fn, total, size)
        shared = total if space == "shared" else shared
    return offsets, shared, _add(fn, total, fn.binary("sub", int_val(0), shared))


def _add(fn: Function, a: Val, b: Val) -> Val:
    return b if a.ref == "0" else fn.binary("add", a, b)


def _buffer_bytes(state: State, buffer: Buffer) -> Val:
    """From the base to the end of the last element, rounded up to the workspace's alignment; 0 where it is empty."""
    total: Expr = int_const(buffer.dtype.itemsize + LINE - 1)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        total = total + (extent - 1) * stride
    size = eval_expr(state, Context(), maximum(simplify_int(total), 0))
    return state.fn.binary("and", size, int_val(-LINE))


def _has_recurrence(node: Node) -> bool:
    """Whether some innermost loop reads what it stores, at other places."""
    inside = (*node.body, *node.orelse) if isinstance(node, If) else node.body if isinstance(node, Loop) else ()
    if isinstance(node, Loop) and not any(isinstance(n, (Loop, If)) for n in inside):
        stored = {(n.buffer, n.subscripts) for n in inside if isinstance(n, Store)}
        buffers = {buffer for buffer, _ in stored}
        found = (r for n in inside for e in node_expressions(n) for r in reads(e))
        return any(r.tensor in buffers and (r.tensor, r.subscripts) not in stored for r in found)
    return any(map(_has_recurrence, inside))


def _sums_under_conditions(node: Node, inside_registers: bool = False) -> bool:
    """Whether sums of a tile in registers read under conditions, such as taps of a filter at the border of an image."""
    inside = (*node.body, *node.orelse) if isinstance(node, If) else node.body if isinstance(node, Loop) else ()
    is_inside = inside_registers or (isinstance(node, Loop) and bool(node.registers))
    if isinstance(node, Update) and is_inside:
        return any(isinstance(e, Select) for e in walk(node.value))
    return any(_sums_under_conditions(n, is_inside) for n in inside)


def has_guards(body: tuple[Node, ...]) -> bool:
    for node in body:
        match node:
            case Guard():
                return True
            case If():
                if has_guards(node.body) or has_guards(node.orelse):
                    return True
            case Loop():
                if has_guards(node.body):
                    return True
    return False
