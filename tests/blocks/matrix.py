"""Counts of programs that are right on arrays in random chunks, refused by a named error, or wrong.

``python -m tests.blocks.matrix [usual] [conformance] [polybench] [example] [random[=200]] [mixed[=200]] [NAME…] [vjp]
[kernels] [-v]``; all but those of PolyBench and the examples by default.  Blocks are interpreted; with ``kernels`` they are
compiled, with ``vjp`` they are those of derivatives.  ``seed=3`` draws other chunks.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import dask
import numpy as np

import polyc
from polyc.api.operator import Operator
from polyc.api.sources import FixedSource
from polyc.diagnostics import PolycError, PolycWarning
from polyc.ir.interpret import interpret
from tests.blocks.differential import chunk, interpreted
from tests.blocks.programs import BODIES, make_case
from tests.gradients.helpers import Case
from tests.gradients.sources import all_cases, mixed_case
from tests.property.strategies import cases, draw_cases

KINDS = ("usual", "conformance", "polybench", "example")
COUNT = 200
TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-9}
"""Of the greatest value, by bytes of an element: sums over chunks are added up in another order."""


def make_operator(case: Case) -> Operator:
    options = polyc.compile("def f(float(N) x) -> (y) { y(i) = x(i) }").options
    return Operator(FixedSource(case.program), case.program.name, options)


def typed(case: Case) -> Case:
    """With the types that the program declares."""
    types = case.program.types
    return Case(case.program, case.sizes, {n: np.asarray(a, types[n].numpy) for n, a in case.arrays.items()}, case.out)


def differentiate(case: Case) -> Case:
    """The derivatives of a program along ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolycWarning)
        program = polyc.vjp(make_operator(case)).program
    made = interpret(case.program, case.arrays, case.sizes, case.out)
    arrays = dict(case.arrays)
    for r in case.program.returns:
        if f"d_{r.name}" in program.parameters:
            arrays[f"d_{r.name}"] = np.ones_like(made[r.name])
    return Case(program, case.sizes, {n: a for n, a in arrays.items() if n in program.parameters}, {})


def outcome_of(make: Callable[[], Case], source: random.Random, has_kernels: bool, is_vjp: bool) -> str:
    """What came of a program: how many of its results are cut, what is refused, or what is wrong."""
    try:
        case = typed(make())
        if is_vjp:
            case = differentiate(case)
        expected = interpret(case.program, case.arrays, case.sizes, case.out)
    except PolycError as error:
        return f"no program: {error.code}"
    operator = make_operator(case)
    numbers = {n: v for n, v in case.sizes.items() if n in operator.program.sizes and n not in case.arrays}
    chunked = chunk(source, {n: np.asarray(a) if np.ndim(a) else a for n, a in case.arrays.items()})
    if not any(hasattr(a, "chunks") for a in chunked.values()):
        return "no arrays"
    try:
        with nullcontext() if has_kernels else interpreted(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = operator.blocks(*(chunked[p] for p in operator.program.parameters), **numbers)
            results = made if isinstance(made, tuple) else (made,)
            values = dask.compute(*results, scheduler="synchronous")
    except PolycError as error:
        return f"refused: {error.code}: {error.diagnostics[0].message}"
    except Exception as error:  # whatever it is, the others are counted as well
        return f"wrong: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    for r, result, value in zip(operator.program.returns, results, values, strict=True):
        problem = find_difference(result, np.asarray(value), expected[r.name])
        if problem:
            return f"wrong: {r.name} {problem}"
    several = [max(map(len, r.chunks), default=1) > 1 for r in results]
    return "right, all results in chunks" if all(several) else "right, some results in one chunk"


def find_difference(result: Any, value: np.ndarray, whole: np.ndarray) -> str | None:
    """In what an array in chunks differs from the whole one."""
    if value.shape != whole.shape or tuple(map(sum, result.chunks)) != whole.shape:
        return f"has shape {value.shape}, not {whole.shape}"
    if not value.dtype == result.dtype == whole.dtype:
        return f"has type {value.dtype}, not {whole.dtype}"
    tolerance = 0.0
    if whole.dtype.kind not in "biu":
        finite = np.abs(whole.astype(np.complex128 if whole.dtype.kind == "c" else np.float64))
        tolerance = TOLERANCE[min(8, np.real(whole[..., None][..., :0]).dtype.itemsize)]
        tolerance *= max(1.0, float(np.max(finite[np.isfinite(finite)], initial=0.0)))
    with np.errstate(all="ignore"):
        wide = [a.astype(np.complex128) if tolerance else a for a in (value, whole)]
        is_same = np.isclose(*wide, rtol=0, atol=tolerance, equal_nan=True) if tolerance else value == whole
    return None if np.all(is_same) else f"differs at {np.argwhere(~np.asarray(is_same))[:3].tolist()}"


def chosen(words: list[str]) -> Iterator[tuple[str, Callable[[], Case]]]:
    counts = {w.partition("=")[0]: int(w.partition("=")[2] or COUNT) for w in words if w.startswith(("random", "mixed"))}
    kinds = [w for w in words if w in KINDS]
    names = [w for w in words if w not in kinds and w.partition("=")[0] not in counts]
    if not words:
        kinds, counts = ["usual", "conformance"], {"random": COUNT, "mixed": COUNT}
    usual = ((f"usual {name}", partial(make_case, name)) for name in BODIES)
    for name, make in (*usual, *all_cases()) if kinds or names else ():
        if any(name.startswith(k) for k in kinds) or name.split()[1] in names:
            yield name, make
    for number, case in enumerate(draw_cases(counts["random"], cases()) if "random" in counts else ()):
        yield f"random {number}", partial(lambda c: Case(c.program, c.sizes, c.arrays, c.out), case)
    for seed in range(counts.get("mixed", 0)):
        yield f"mixed {seed}", partial(mixed_case, seed)


def main(words: list[str]) -> int:
    flags = [w for w in words if w in ("vjp", "kernels", "-v") or w.startswith("seed=")]
    seed = next((int(w.partition("=")[2]) for w in flags if w.startswith("seed=")), 0)
    found: dict[str, str] = {}
    begin = time.process_time()
    for name, make in chosen([w for w in words if w not in flags]):
        source = random.Random(f"{name} {seed}")
        found[name] = outcome_of(make, source, "kernels" in flags, "vjp" in flags)
        if "-v" in flags or found[name].startswith(("wrong", "refused")):
            print(f"{name}: {found[name]}", flush=True)
    for kind in dict.fromkeys(n.split()[0] for n in found):
        counted = Counter(
            o.partition(": ")[0] if o.startswith("wrong") else o for n, o in found.items() if n.split()[0] == kind
        )
        print(f"{kind}: " + ", ".join(f"{n} {o}" for o, n in counted.most_common()))
    print(f"{len(found)} programs, {time.process_time() - begin:.1f} CPU-seconds")
    return min(1, sum(o.startswith("wrong") for o in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
