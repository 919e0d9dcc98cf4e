"""Programs through single passes and through the whole pipeline, against the reference interpreter."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from polyc import driver
from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.frontends.tc import read_tc
from polyc.ir.expr import evaluate, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.program import Program, specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.ir.text import format_program
from polyc.ir.tolerance import check_results, expect_results
from polyc.ir.verify_loops import verify_loops
from polyc.machine import X86_64_V4, Machine
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.pipeline import PROGRAM, ProgramContext, begin

NOT_TILED = Options(tile=False, vectorize=False, parallel=False)


def read(text: str) -> Program:
    (program,) = read_tc(text)
    return program


def infer(program: Program, **sizes: int) -> tuple[Program, Ranges]:
    """The program at these sizes (others stay symbolic) and its ranges: what the passes of programs take."""
    sized = define_sizes(specialize_sizes(program, {n: int_const(v) for n, v in sizes.items()}))
    return sized, infer_ranges(sized)


def run_pass(name: str, program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """A program after one pass of its level, with the remarks of that."""
    context = ProgramContext(Options(), X86_64_V4, frozenset(), 0, False, [])
    (step,) = (p for p in PROGRAM.passes if p.name == name)
    state = step.run(begin(program, ranges, None), context)
    return state.program, state.ranges, context.remarks


def statements(program: Program) -> list[str]:
    """The lines of the statements in the program's text, without names of sizes and tensors."""
    lines = format_program(program).splitlines()
    return [line.strip() for line in lines if line.startswith(("  S", "    where"))]


def contiguous(program: Program, sizes: dict[str, int]) -> driver.Strides:
    """Byte strides of all arguments in C order."""
    shapes = driver.infer_shapes(program, sizes)
    inputs = [program.tensor(n) for n in program.parameters]
    arrays = [np.empty(tuple(evaluate(e, sizes) for e in t.shape or ()), t.dtype.numpy) for t in inputs]
    arrays += [np.empty(shapes[r.name][1], program.tensor(r.version).dtype.numpy) for r in program.returns]
    return tuple(a.strides for a in arrays)


def lower(
    text: str | Program,
    sizes: dict[str, int],
    is_fixed: bool = True,
    options: Options | None = None,
    target: Machine = X86_64_V4,
    aliases: tuple[tuple[str, str], ...] = (),
    constants: tuple[str, ...] = (),
) -> driver.Lowered:
    """All stages for `target`; fixed: at these sizes and contiguous arrays, else for any."""
    program = read(text) if isinstance(text, str) else text
    return driver.lower(
        program,
        sizes=sizes if is_fixed else None,
        strides=contiguous(program, sizes) if is_fixed else None,
        options=options or Options(),
        target=target,
        aliases=aliases,
        constants=constants,
    )


@functools.lru_cache(maxsize=1)
def _lower_for_any(text: str | Program, options: Options, target: Machine, test: str) -> driver.Lowered:
    """All stages for symbolic sizes, once for all sizes that a test asks for."""
    return lower(text, {}, False, options, target)


def check_nest(lowered: driver.Lowered, sizes: dict[str, int], aliases: tuple[tuple[str, str], ...] = ()) -> None:
    """Interpret the nest and the program on random arrays; fail where they differ or the first rung was not taken."""
    falls = [r.message for r in lowered.remarks if r.kind == "missed" and r.pass_name == "schedule"]
    assert falls == []
    program = lowered.program
    verify_loops(lowered.nest)
    rng = np.random.default_rng([7, *sizes.values()])
    values = dict(sizes)
    for name, expr in lowered.signature.defined_sizes:
        values[name] = evaluate(expr, values)
    arrays, given = {}, {}
    for spec in lowered.signature.arrays:
        shape = tuple(max(0, evaluate(e, values)) for e in spec.shape)
        if spec.role == "output":
            arrays[spec.name] = np.full(shape, 77, spec.dtype.numpy)
            continue
        drawn = rng.standard_normal(shape) if spec.dtype.is_float else rng.integers(0, 4, shape)
        arrays[spec.name] = drawn.astype(spec.dtype.numpy)
        if spec.role == "inout":
            given[spec.name] = arrays[spec.name].copy()
    inputs = {n: arrays[n].copy() for n in program.parameters}
    for out, source in aliases:
        arrays[out] = arrays[source]
    expected = expect_results(program, inputs, sizes, given)
    data = []
    for spec, buffer in zip(lowered.signature.arrays, lowered.nest.buffers, strict=False):
        array = arrays[spec.name]
        values |= {f"{spec.name}.stride{d}": s for d, s in enumerate(array.strides)}
        data.append(array.reshape(tuple(max(0, evaluate(e, values)) for e in buffer.shape)))
    assert interpret_loops(lowered.nest, data, values) == []
    problem = check_results({r.name: arrays[r.name] for r in program.returns}, expected)
    assert problem is None, f"{problem}\n{format_program(program)}\n{lowered.as_text('loops')}"


def check(text: str | Program, sizes: dict[str, int], target: Machine = X86_64_V4, **changes: object) -> driver.Lowered:
    """Lower for these sizes and for symbolic ones, check both, and give the former; `changes` are options."""
    (fixed,) = check_each(text, [sizes], target, **changes)
    return fixed


def check_each(
    text: str | Program,
    all_sizes: list[dict[str, int]],
    target: Machine = X86_64_V4,
    others: Iterable[dict[str, int]] = (),
    **changes: object,
) -> list[driver.Lowered]:
    """Lower for each of these sizes, and once for any, check all, the latter at `others`, too, and give the former."""
    options = replace(Options(), **changes)  # type: ignore[arg-type]
    for_any = _lower_for_any(text, options, target, os.environ["PYTEST_CURRENT_TEST"])
    fixed = [lower(text, sizes, True, options, target) for sizes in all_sizes]
    for lowered, sizes in zip(fixed, all_sizes, strict=True):
        check_nest(for_any, sizes)
        check_nest(lowered, sizes)
    for sizes in others:
        check_nest(for_any, sizes)
    return fixed
