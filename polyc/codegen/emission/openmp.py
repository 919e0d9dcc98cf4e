"""Parallel loops: outlined bodies, and the fork through the GOMP ABI that libgomp, libomp and libiomp5 all offer.

The iterations are split into one contiguous part per thread of the team that actually came, or into several where there is
enough work, of which threads take one after the other (`parts`).  The body is a function of its own, called by every thread of
the team for each part, or directly as a team of one.  Pipelines fork in the same way, and hand out their columns themselves
(`pipelines`).
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_expr
from polyc.codegen.emission.parts import PLACES, count_parts, make_counts, take_parts
from polyc.codegen.emission.pipelines import begin_columns, emit_column, make_places
from polyc.codegen.emission.predicates import as_scalar, eval_predicates
from polyc.codegen.writer.builder import Function, Val, int_val
from polyc.codegen.writer.vectors import finish_streams
from polyc.ir.loops import Loop
from polyc.records import replace

EmitBody = Callable[[State, Context, Val, Val], None]
"""Writes the serial loop from a lower to an upper bound."""


def argument_text(state: State, name: str, value: Val, is_alone: bool = True) -> str:
    """An argument of an internal function: buffers that share memory with no other are noalias, unless another thread writes
    what the function reads while it runs (not `is_alone`)."""
    if not is_alone or value.type != "ptr" or name not in state.by_name:
        return str(value)
    others = [b for b in state.nest.buffers if b.name != name and name in b.may_alias]
    return f"ptr {'' if others or state.by_name[name].may_alias else 'noalias '}{value.ref}"


def emit_parallel(state: State, ctx: Context, loop: Loop, emit_body: EmitBody) -> None:
    """Emit ``parallel for`` of `loop`; `emit_body` writes the serial loop from a lower to an upper bound."""
    fn = state.fn
    with fn.when(as_scalar(state, eval_predicates(state, ctx))):
        ctx = ctx.branched()
        lower, upper = eval_expr(state, ctx, loop.lower), eval_expr(state, ctx, loop.upper)
        captured = _captured(state, ctx)
        number = state.functions["parallel"] = state.functions.get("parallel", 0) + 1
        body = f'@"{state.nest.name}.body{number}"'
        fork = f'@"{state.nest.name}.fork{number}"'
        body, captured = _emit_body_function(state, ctx, body, captured, emit_body, loop.stream)
        fork = _emit_fork_function(state, fork, body, captured, loop)
        _emit_call(state, ctx, loop, lower, upper, body, fork, captured)


def emit_stream(state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, emit_body: EmitBody) -> None:
    """Emit a column of the pipeline around `loop`; `emit_body` writes the serial loop from a lower to an upper bound.

    Tiles are functions of their own: what they read is written by other threads only while they do not run."""
    columns = state.columns
    assert columns is not None
    captured = _captured(state, ctx)
    number = state.functions["parallel"] = state.functions.get("parallel", 0) + 1
    body = f'@"{state.nest.name}.body{number}"'
    body, captured = _emit_body_function(state, ctx, body, captured, emit_body)
    operands = [argument_text(state, key, value) for key, value in captured.items()]

    def run_tile(i: Val) -> None:
        behind = state.fn.binary("add", i, int_val(1))
        state.fn.effect(f"call void {body}({', '.join([*operands, str(i), str(behind)])})")

    emit_column(state, columns, lower, upper, loop.step, run_tile)
    state.invalidate_all()


def _captured(state: State, ctx: Context) -> dict[str, Val]:
    """Everything the body may need: base addresses, parameters, hidden values, outer loop variables, by a unique key."""
    result = {state.by_name[name].place: v for name, v in state.buffers.items() if state.by_name[name].space != "register"}
    result |= {f"size {name}": value for name, value in state.params.items()}
    result |= {f"hidden {name}": value for name, value in state.hidden.items()}
    result |= {f"index {name}": value for name, value in ctx.env.items() if isinstance(value, Val)}
    return result


def _emit_body_function(
    state: State,
    ctx: Context,
    name: str,
    captured: dict[str, Val],
    emit_body: EmitBody,
    stream: str | None = None,
) -> tuple[str, dict[str, Val]]:
    """A function of what is captured, a lower and an upper bound, and of a pipeline the places of its columns.

    Gives its name, another one than `name` where an earlier function does the same (three products of one shape), and the part
    of `captured` that it takes: what it uses."""
    arguments = {key: Val(f"%a{n}", value.type) for n, (key, value) in enumerate(captured.items())}
    lower, upper = Val("%lower", "i64"), Val("%upper", "i64")
    fn = Function(state.module, "")
    inner = replace(
        state,
        fn=fn,
        params={key: arguments[f"size {key}"] for key in state.params},
        buffers={key: arguments[place] for key in state.buffers if (place := state.by_name[key].place) in arguments},
        hidden={key: arguments[f"hidden {key}"] for key in state.hidden},
        in_parallel=True,
        columns=None if stream is None else begin_columns(fn, stream, Val("%places", "ptr")),
        epochs={},
        divisors={},
        stores={},
        held={},
        memo=[{}],
    )
    env = {key: arguments[f"index {key}"] if isinstance(value, Val) else value for key, value in ctx.env.items()}
    emit_body(inner, Context(env=env), lower, upper)
    finish_streams(fn)
    fn.current.terminator = "ret void"
    used = fn.operands()
    if any(b.space == "thread" and b.name in arguments and arguments[b.name].ref in used for b in state.nest.buffers):
        used.add(arguments["hidden per_thread"].ref)  # by which the fork finds each thread's own
    taken = {key: value for key, value in captured.items() if arguments[key].ref in used}
    texts = [argument_text(state, key, arguments[key], stream is None) for key in taken]
    places = [] if stream is None else ["ptr %places"]
    fn.header = f"define internal void {name}({', '.join([*texts, str(lower), str(upper), *places])}) noinline"
    return state.module.share(fn, name), taken


def _emit_fork_function(state: State, name: str, body: str, captured: dict[str, Val], loop: Loop) -> str:
    """What each thread runs: its number, its parts of the iterations, its own copies of the thread buffers.  Gives its name."""
    module, step = state.module, loop.step
    fn = Function(module, f"define internal void {name}(ptr %block)")
    module.declare("omp_get_thread_num", "i32", [])
    module.declare("omp_get_num_threads", "i32", [])
    thread = fn.convert("zext", fn.effect_value("call i32 @omp_get_thread_num()", "i32"), "i64")
    team = fn.convert("zext", fn.effect_value("call i32 @omp_get_num_threads()", "i32"), "i64")
    values: dict[str, Val] = {}
    bounds = {"bound lower": int_val(0), "bound upper": int_val(0)}
    for n, (key, value) in enumerate({**captured, **bounds, "shared": Val("null", "ptr")}.items(), 1):
        place = fn.pure(f"getelementptr i8, ptr %block, i64 {8 * n}", "ptr")
        values[key] = fn.effect_value(f"load {value.type}, {place}, align 8", value.type)
    lower, upper, shared = values.pop("bound lower"), values.pop("bound upper"), values.pop("shared")
    trips = fn.binary("sub", upper, lower)
    if step != 1:
        trips = fn.binary("sdiv", fn.binary("add", trips, int_val(step - 1)), int_val(step))
    for key, value in values.items():
        if key in state.by_name and state.by_name[key].space == "thread":
            own = fn.binary("mul", thread, values["hidden per_thread"])
            values[key] = fn.pure(f"getelementptr i8, {value}, {own}", "ptr")
    operands = [argument_text(state, key, value) for key, value in values.items()]
    if loop.stream is not None:
        with fn.when(fn.compare("icmp slt", thread, int_val(PLACES))):
            fn.effect(f"call void {body}({', '.join([*operands, str(lower), str(upper), str(shared)])})")
        fn.current.terminator = "ret void"
        return module.share(fn, name)
    parts = count_parts(fn, trips, team, loop.least_part) if loop.least_part else int_val(1)
    n_parts = fn.binary("mul", team, parts)
    share, rest = fn.binary("sdiv", trips, n_parts), fn.binary("srem", trips, n_parts)

    def run(part: Val) -> None:
        start = fn.binary("add", fn.binary("mul", part, share), fn.intrinsic("smin", part, rest))
        extra = fn.convert("zext", fn.compare("icmp slt", part, rest), "i64")
        stop = fn.binary("add", start, fn.binary("add", share, extra))
        first = fn.binary("add", lower, fn.binary("mul", start, int_val(step)))
        last = fn.intrinsic("smin", upper, fn.binary("add", lower, fn.binary("mul", stop, int_val(step))))
        with fn.when(fn.compare("icmp slt", first, last)):
            fn.effect(f"call void {body}({', '.join([*operands, str(first), str(last)])})")

    if loop.least_part:
        take_parts(fn, shared, thread, team, parts, loop.is_uneven, run)
    else:
        run(thread)
    fn.current.terminator = "ret void"
    return module.share(fn, name)


def _digest(fn: Function, captured: dict[str, Val], lower: Val, upper: Val) -> Val:
    """A number for the sizes of a call, by which the pool of threads knows what such a loop takes (`objects/pool_ir.py`)."""
    result = fn.binary("sub", upper, lower)
    for key, value in captured.items():
        if key.startswith("size "):
            result = fn.binary("add", fn.binary("mul", result, int_val(_FACTOR)), value)
    return result


_FACTOR = 0x100000001B3


def _emit_call(
    state: State, ctx: Context, loop: Loop, lower: Val, upper: Val, body: str, fork: str, captured: dict[str, Val]
) -> None:
    fn = state.fn
    fn.module.declare("GOMP_parallel", "void", ["ptr", "ptr", "i32", "i32"])
    threads = state.hidden["threads"]
    wanted = fn.compare("icmp sgt", threads, int_val(1, "i32"))
    wanted = fn.binary("and", wanted, fn.compare("icmp sgt", fn.binary("sub", upper, lower), int_val(loop.step)))
    if loop.parallel_if is not None:
        wanted = fn.binary("and", wanted, eval_expr(state, ctx, loop.parallel_if))
    team, alone, after = fn.new_block("team"), fn.new_block("alone"), fn.new_block("joined")
    fn.branch_if(wanted, team, alone)
    fn.place(team)
    with fn.scope():
        shared = Val("null", "ptr")
        if loop.stream is not None:
            shared = make_places(fn)
        elif loop.least_part:
            shared = make_counts(fn, threads)
        values = [_digest(fn, captured, lower, upper), *captured.values(), lower, upper, shared]
        block = fn.alloca(f"[{len(values)} x i64]", 8)
        for n, value in enumerate(values):
            fn.effect(f"store {value}, {fn.pure(f'getelementptr i8, {block}, i64 {8 * n}', 'ptr')}, align 8")
        fn.effect(f"call void @GOMP_parallel(ptr {fork}, {block}, {threads}, i32 0)")
        fn.branch(after)
    fn.place(alone)
    with fn.scope(), fn.when(fn.compare("icmp slt", lower, upper)):
        operands = [argument_text(state, key, value) for key, value in captured.items()]
        operands += [str(lower), str(upper), *([] if loop.stream is None else [str(make_places(fn))])]
        fn.effect(f"call void {body}({', '.join(operands)})")
    fn.branch(after)
    fn.place(after)
    state.invalidate_all()
