"""Reading the conformance programs, drawing their inputs, comparing results."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyc.diagnostics import PolycError
from polyc.ir.expr import Read, Size, evaluate, walk
from polyc.ir.interpret import interpret
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Program

DATA = Path(__file__).parents[2] / "../shared/conformance/tc_programs.json"
POINTS = 20_000_000
"""Largest iteration space of a small test."""
MANY_POINTS = 12_000_000
"""Largest iteration space of a timed test with a batch that can be shortened."""
LONG = 2**25 // 4
"""Elements from which on tensors are longer than caches are taken for: their results are streamed."""
VARIED = (1, 7, 33)
"""Values that each size symbol takes in turn."""
FALLBACK = (5, 7, 6, 4, 9, 3)
"""Sizes by order of appearance for programs that come without any."""


def load() -> dict[str, Any]:
    """The whole file; empty where it is absent (the tests then skip and say so)."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def entries(section: str, levels: tuple[str, ...] | None = None) -> list[Any]:
    """Test parameters for a section, or one that skips where the file is absent."""
    data = load()
    if not data:
        reason = f"{DATA} is absent: the conformance programs are not part of this repository"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(e, id=e["id"]) for e in data[section] if levels is None or e["level"] in levels]


@dataclass(frozen=True, slots=True)
class Case:
    """A program at concrete sizes with inputs; `out` is what accumulated results hold before the call."""

    program: Program
    sizes: dict[str, int]
    arrays: dict[str, np.ndarray]
    out: dict[str, np.ndarray]

    def free_sizes(self) -> dict[str, int]:
        """Sizes that no input's shape gives."""
        given = {
            node.name
            for p in self.program.parameters
            for e in self.program.tensor(p).shape or ()
            for node in walk(e)
            if isinstance(node, Size)
        }
        return {n: self.sizes[n] for n in self.program.sizes if n not in given}


def variants(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Each size symbol in turn set to each of `VARIED`."""
    for name in sizes:
        for value in VARIED:
            if sizes[name] != value:
                yield {**sizes, name: value}


def default_sizes(program: Program) -> dict[str, int]:
    return {n: FALLBACK[i % len(FALLBACK)] for i, n in enumerate(program.sizes)}


def timed_sizes(entry: Mapping[str, Any], program: Program, timed: Mapping[str, int]) -> dict[str, int]:
    """Sizes of a timed run.  Where the entry times a size under another name, the one left over is meant."""
    sizes = {**entry["sizes"], **timed}
    unnamed = [n for n in program.sizes if n not in timed]
    strangers = [n for n in timed if n not in program.sizes]
    if len(unnamed) == len(strangers) == 1:
        sizes[unnamed[0]] = timed[strangers[0]]
    return shorten_batch(program, sizes)


def shorten_batch(program: Program, sizes: dict[str, int]) -> dict[str, int]:
    """`sizes` with fewer rows, images or the like where these are so many that the interpreter takes seconds.

    What tiles depend on stays as it was, and so do tensors that are too long for caches."""
    shapes = [program.tensor(name).shape or () for name in program.parameters]
    batch = max(shapes, key=len)[0]
    if sum(shape.count(batch) for shape in shapes) > 1:
        return sizes
    while isinstance(batch, Size) and sizes[batch.name] >= 16:
        ranges = solve_ranges(program, sizes)
        points = sum(prod(max(0, hi - lo) for lo, hi in box.values()) for box in ranges.statements.values())
        longest = max(prod(hi - lo for lo, hi in box) for box in ranges.tensors.values())
        if points <= MANY_POINTS or LONG < longest <= 2 * LONG:
            break
        sizes = {**sizes, batch.name: sizes[batch.name] // 2}
    return sizes


def make_case(entry: Mapping[str, Any], program: Program, sizes: Mapping[str, int]) -> Case:
    """Draw inputs: deterministic for an entry and its sizes."""
    sizes = {n: sizes[n] for n in program.sizes}
    seed = zlib.crc32(f"{entry['id']}{sorted(sizes.items())}".encode())
    rng = np.random.default_rng(seed)
    bounds = index_bounds(program, sizes)
    arrays = {}
    for name in program.parameters:
        tensor = program.tensor(name)
        shape = tuple(evaluate(e, sizes) for e in tensor.shape or ())
        spec = entry.get("values", {}).get(name)
        arrays[name] = draw(rng, spec, shape, tensor.dtype.numpy, bounds.get(name))
    out = {}
    for name, dims in entry.get("inout", {}).items():
        dtype = program.tensor(next(r for r in program.returns if r.name == name).version).dtype.numpy
        out[name] = draw(rng, None, tuple(sizes[d] for d in dims), dtype, None)
    return Case(program, sizes, arrays, out)


def index_bounds(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """For each input whose elements are used as a subscript, the smallest extent that they index."""
    bounds: dict[str, int] = {}
    for statement in program.statements:
        for node in walk(statement.value):
            if not isinstance(node, Read):
                continue
            shape = program.tensor(node.tensor).shape
            for d, subscript in enumerate(node.subscripts):
                for inner in walk(subscript):
                    if isinstance(inner, Read) and shape is not None:
                        extent = evaluate(shape[d], sizes)
                        bounds[inner.tensor] = min(extent, bounds.get(inner.tensor, extent))
    return bounds


def draw(rng: np.random.Generator, spec: Any, shape: tuple[int, ...], dtype: np.dtype, bound: int | None) -> np.ndarray:
    """Values as the entry asks (a constant, a half-open range, uniform, a sorted array), else small ones of the type.

    Values used as subscripts stay below `bound`."""
    match spec:
        case {"array": values}:
            ends = np.linspace(values[0], values[-1], shape[0]).astype(dtype)
            return np.asarray(values, dtype) if shape == (len(values),) else ends
        case {"uniform": [low, high]}:
            return rng.uniform(low, high, shape).astype(dtype)
        case [low, high]:
            top = high if bound is None else max(low + 1, min(high, bound))
            return rng.integers(low, top, shape).astype(dtype)
        case int() | float():
            return np.full(shape, spec, dtype)
    if dtype.kind == "f":
        top = 1.0 if bound is None else max(1, bound) - 1e-3
        return rng.uniform(-1.0 if bound is None else 0.0, top, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    low, high = (0, 10) if dtype.kind == "u" else (-5, 6)
    return rng.integers(*((0, max(1, bound)) if bound is not None else (low, high)), shape).astype(dtype)


def points(case: Case) -> int:
    """Points of the largest iteration space; raises the interpreter's RangeError where ranges do not fit."""
    boxes = solve_ranges(case.program, case.sizes).statements.values()
    return max((prod(max(0, upper - lower) for lower, upper in box.values()) for box in boxes), default=1)


def terms(case: Case) -> int:
    """Operations behind an element of the last result, about: what each statement reduces, added up."""
    boxes = solve_ranges(case.program, case.sizes).statements
    return sum(
        1 + prod(max(0, boxes[s.name][i][1] - boxes[s.name][i][0]) for i in s.reduction_indices)
        for s in case.program.statements
    )


def expected_of(case: Case) -> dict[str, np.ndarray]:
    """The interpreter's results: f32 arithmetic done in f64, everything else in the program's own types."""
    return interpret(case.program, case.arrays, case.sizes, case.out, float_as=np.float64)


def check_results(got: Mapping[str, Any], expected: Mapping[str, np.ndarray], n_terms: int) -> None:
    """Integers and booleans exactly; floats within the rounding of `n_terms` operations, relative to the largest value."""
    for name, want in expected.items():
        have = np.asarray(got[name])
        assert have.shape == want.shape, f"{name}: shape {have.shape}, expected {want.shape}"
        if have.dtype.kind != "f":
            np.testing.assert_array_equal(have, want, err_msg=name)
            continue
        unit = float(np.finfo(have.dtype).eps)
        finite = np.abs(want[np.isfinite(want)])
        scale = float(finite.max(initial=0.0))
        rtol = unit * (32 + 4 * np.sqrt(n_terms))
        if finite.size == want.size and np.abs(have - want).max(initial=0.0) <= rtol * scale:
            continue  # which is all that most results need to be asked
        np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol * scale, equal_nan=True, err_msg=name)


def run(call: Any, case: Case, **sizes: int) -> dict[str, Any]:
    """Results by name of calling an operator or kernel on a case."""
    names = [r.name for r in case.program.returns]
    out = {n: a.copy() for n, a in case.out.items()}
    results = call(*case.arrays.values(), **({"out": out} if out else {}), **sizes)
    return dict(zip(names, results if len(names) > 1 else (results,), strict=True))


def agree(call: Any, case: Case) -> None:
    """The call gives the interpreter's results, or both refuse the sizes."""
    try:
        if points(case) > POINTS:
            return
        expected = expected_of(case)
    except PolycError:
        with pytest.raises(PolycError):
            run(call, case, **case.free_sizes())
        return
    check_results(run(call, case, **case.free_sizes()), expected, terms(case))
