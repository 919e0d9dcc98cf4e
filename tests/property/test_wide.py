"""Random programs over all element types, shapes and ways to subscript: kernels against the reference interpreter.

By hand, for a longer run: ``POLYC_EXAMPLES=5000 pytest tests/property/test_wide.py``.
"""

from __future__ import annotations

import os
import random
import warnings
from contextlib import nullcontext

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc import driver
from polyc.diagnostics import PolycError
from polyc.ir.tolerance import check_results, expect_results
from polyc.runtime import memory
from polyc.runtime.threads import set_num_threads
from tests.property.pipeline import LEVELS, small_thresholds, spoil_workspace
from tests.property.wide import make_arrays, make_program

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "30"))
SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33)
SWITCHES = ("reassociate", "inline", "tile", "vectorize", "parallel")
PASSES = sorted(p.name for level in driver.pass_levels() for p in level.passes if not p.required)
OUTSIDE = {"range-out-of-bounds", "range-precondition", "bounds-subscript", "bounds-index"}


@settings(max_examples=EXAMPLES, deadline=None, derandomize="POLYC_EXAMPLES" not in os.environ, database=None)
@given(st.integers(0, 1 << 30))
def test_kernels_and_interpreter_agree(seed: int) -> None:
    check_program(seed)


def check_program(seed: int) -> None:
    """Compile and run the program of `seed`, and compare; AssertionError with the text where they differ."""
    source = random.Random(seed)
    text, parameters, accumulated = make_program(source)
    sizes = {"N": source.choice(SIZES), "M": source.choice(SIZES)}
    level, dynamic, eager = source.choice(LEVELS), source.random() < 0.3, source.random() < 0.3
    options: dict[str, object] = {source.choice(SWITCHES): False} if source.random() < 0.2 else {}
    if source.random() < 0.3:
        options["disable"] = source.sample(PASSES, source.choice([1, 1, 8, 30]))
    if source.random() < 0.1:
        options["scheduler"] = source.choice(["isl", "source"])
    arrays, out = make_arrays(source, parameters, accumulated, sizes)
    where = f"{level} {sizes} seed={seed} dynamic={dynamic} eager={eager} {options}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        try:
            operator = polyc.compile(text, "f", target=level, dynamic=dynamic, **options)
        except PolycError as error:
            raise AssertionError(f"refused: {error}\n{where}\n{text}") from error
    code, expected, results = None, None, ()
    set_num_threads(source.choice([1, 2]))
    try:
        with np.errstate(all="ignore"):
            expected = expect_results(operator.program, arrays, sizes, out)
    except PolycError as error:
        code = error.code
    names = [r.name for r in operator.program.returns]
    got_out = {name: array.copy() for name, array in out.items()}
    try:
        with small_thresholds() if eager else nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore", polyc.PolycWarning)
            memory.workspace_address(1 << 16)
            spoil_workspace(source.choice([0xFF, 0x7F]))
            got = operator(**arrays, **({"out": got_out} if got_out else {}))
        results = got if isinstance(got, tuple) else (got,)
    except PolycError as error:
        codes = [d.code for d in error.diagnostics]  # the compiler finds all errors, the interpreter the first
        if {code, *codes} <= OUTSIDE:
            return  # a subscript that data chooses is checked with the ranges where the tensor is empty
        assert expected is None and code in codes, (
            f"refused at the call: {error}\nnot so by the interpreter ({code})\n{where}\n{text}"
        )
        return
    finally:
        set_num_threads(None)
    assert expected is not None, f"{where} should be refused ({code})\n{text}"
    problem = check_results(dict(zip(names, results, strict=True)), expected)
    assert problem is None, f"{problem}\n{where}\n{text}"
