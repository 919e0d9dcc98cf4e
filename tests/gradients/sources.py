"""Where the programs come from whose derivatives are checked: conformance, PolyBench, examples, and random ones."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import polyc
from benchmarks.polybench import KERNELS
from polyc.diagnostics import PolycError, PolycWarning
from polyc.ir.interpret import bind_sizes, interpret
from polyc.ir.program import Program
from tests.conformance import tc_cases
from tests.gradients.helpers import Case
from tests.property import mixed
from tests.test_examples import CASES

EXAMPLES = Path(__file__).parents[2] / "examples"
IS_FULL = os.environ.get("POLYC_TEST_GRADIENTS") == "all"
"""Every program is checked, not a sample of each kind."""
RUNNABLE = ("core", "gather", "inplace", "ext", "ext-triangular")

SMALL = {
    "NI": 3,
    "NJ": 4,
    "NK": 5,
    "NL": 2,
    "NM": 6,
    "NQ": 3,
    "NR": 2,
    "NP": 4,
    "NX": 5,
    "NY": 6,
    "W": 5,
    "H": 6,
    "TSTEPS": 3,
    "TMAX": 3,
}
"""Sizes of PolyBench's kernels, by name; others are `SQUARE`."""
SQUARE = 6

LARGEST = 4
"""Size that those of conformance programs are cut to where the program takes it: the interpreter runs each six times."""


def compile_text(text: str, entry: str | None = None) -> Any:
    """The operator; warnings are the subject of tests of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolycWarning)
        return polyc.compile(text, entry=entry)


@cache
def conformance() -> dict[str, dict[str, Any]]:
    """Entries by name; none where the file is absent."""
    data = tc_cases.load()
    return {e["id"]: e for e in data.get("kernels", ()) if e["level"] in RUNNABLE}


def conformance_case(name: str) -> Case:
    """A program at small sizes, or at its own where it refuses these."""
    entry = conformance()[name]
    program = compile_text(entry["text"], entry.get("entry")).program
    small = {n: min(v, LARGEST + k % 3) for k, (n, v) in enumerate(entry["sizes"].items())}
    case = tc_cases.make_case(entry, program, small)
    try:
        tc_cases.points(case)
        interpret(program, case.arrays, case.sizes, case.out)
    except PolycError:
        case = tc_cases.make_case(entry, program, entry["sizes"])
    return Case(program, case.sizes, case.arrays, case.out)


def polybench_case(name: str) -> Case:
    """A kernel at sizes of a few elements."""
    kernel = KERNELS[name]
    sizes = {n: SMALL.get(n, SQUARE) for n in kernel.sizes}
    if "M" in sizes and "N" in sizes:
        sizes["M"] = SQUARE - 1
    program = compile_text(kernel.source).program
    arrays = {n: np.asarray(a) for n, a in kernel.make_inputs(np.random.default_rng(3), **sizes).items()}
    return Case(program, sizes_of(program, arrays), arrays, {})


def example_case(name: str) -> Case:
    """An example of ``examples/*.tc``: with the inputs of its own test, or drawn ones."""
    entry = name if name == "transformer_block" else None
    program = compile_text((EXAMPLES / f"{name}.tc").read_text(), entry).program
    if name in CASES:
        given = CASES[name][0](4)
        arrays = dict(zip(program.parameters, map(np.asarray, given), strict=True))
        return Case(program, sizes_of(program, arrays), arrays, {})
    sizes = {n: 3 + k % 3 for k, n in enumerate(program.sizes)} | {n: 2 for n in program.sizes if n in "RS"}
    case = tc_cases.make_case({"id": name}, program, sizes)
    return Case(program, case.sizes, case.arrays, {})


def sizes_of(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, int]:
    return bind_sizes(program, arrays, {})


def mixed_case(seed: int, *, is_whole: bool = False) -> Case:
    """A text of `tests.property.mixed` in doubles, at a size from 1 to 5; with whole numbers, of which many are equal."""
    source = random.Random(seed)
    program = compile_text(re.sub(r"\bfloat\b", "double", mixed.make_program(source)), "f").program
    arrays = {n: np.array(a) for n, a in mixed.make_arrays(seed, source.randint(1, 5)).items() if n in program.parameters}
    if is_whole:
        arrays = {n: np.rint(2 * a) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    return Case(program, sizes_of(program, arrays), arrays, {})


def example_names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.tc"))


def all_cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Every named program with what makes its case."""
    for name in conformance():
        yield f"conformance {name}", partial(conformance_case, name)
    for name in KERNELS:
        yield f"polybench {name}", partial(polybench_case, name)
    for name in example_names():
        yield f"example {name}", partial(example_case, name)
