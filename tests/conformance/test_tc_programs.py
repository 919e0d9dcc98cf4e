"""Every program of Tensor Comprehensions' own repository behaves as its entry says.

The programs are data outside this repository; where they are absent the tests skip and say so.  By default each program runs
at its own sizes through a specialised kernel, with each size symbol in turn at 1, 7 and 33 through one kernel with symbolic
sizes, and at its timed sizes.  ``POLYC_CONFORMANCE=full`` specialises for every variant instead.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError, PolycWarning
from polyc.ir.interpret import interpret
from tests.conformance import tc_cases
from tests.conformance.tc_cases import entries

RUNNABLE = ("core", "gather", "inplace", "ext", "ext-triangular")
IS_FULL = os.environ.get("POLYC_CONFORMANCE") == "full"


def compile_entry(entry: dict[str, Any]) -> Any:
    """The operator; warnings are the subject of tests of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolycWarning)
        return polyc.compile(entry["text"], entry=entry.get("entry"))


@pytest.mark.parametrize("entry", entries("kernels", RUNNABLE))
def test_kernel_matches_interpreter(entry: dict[str, Any]) -> None:
    operator = compile_entry(entry)
    tc_cases.agree(operator, tc_cases.make_case(entry, operator.program, entry["sizes"]))


@pytest.mark.parametrize("entry", entries("kernels", RUNNABLE))
def test_kernel_matches_interpreter_at_other_sizes(entry: dict[str, Any]) -> None:
    operator = compile_entry(entry)
    call = operator if IS_FULL else operator.lower().compile()
    for sizes in tc_cases.variants(entry["sizes"]):
        tc_cases.agree(call, tc_cases.make_case(entry, operator.program, sizes))


def timed() -> list[Any]:
    """Programs with their timed sizes."""
    parameters = []
    for parameter in entries("kernels", RUNNABLE):
        (entry,) = parameter.values
        for number, sizes in enumerate(entry.get("bench_sizes", ())):
            parameters.append(pytest.param(entry, sizes, id=f"{entry['id']}-{number}"))
    return parameters or [pytest.param({}, {}, id="absent", marks=parameter.marks)]


@pytest.mark.parametrize(("entry", "sizes"), timed())
def test_kernel_matches_float64_at_timed_sizes(entry: dict[str, Any], sizes: dict[str, int]) -> None:
    operator = compile_entry(entry)
    case = tc_cases.make_case(entry, operator.program, tc_cases.timed_sizes(entry, operator.program, sizes))
    tc_cases.check_results(tc_cases.run(operator, case, **case.free_sizes()), tc_cases.expected_of(case), tc_cases.terms(case))


def size_value(text: str | int, sizes: dict[str, int]) -> int:
    """The value of an expected bound such as ``min(N, 20) - 1``."""
    return int(eval(str(text), {"__builtins__": {}, "min": min, "max": max}, dict(sizes)))


@pytest.mark.parametrize("entry", entries("inference"))
def test_inferred_ranges(entry: dict[str, Any]) -> None:
    from polyc import driver

    operator = compile_entry(entry)
    variants = [entry["sizes"], *tc_cases.variants(entry["sizes"])]
    for sizes in variants:
        expect = {
            name: (
                tuple(size_value(e, sizes) for e in want["mins"]),
                tuple(size_value(e, sizes) for e in want["extents"]),
            )
            for name, want in entry["expect"].items()
        }
        if any(extent < 0 for _, extents in expect.values() for extent in extents):
            with pytest.raises(PolycError):
                driver.infer_shapes(operator.program, sizes)
            continue
        if sizes is not entry["sizes"] and any(0 in extents for _, extents in expect.values()):
            continue  # an empty tensor bounds its readers by other rules
        found = driver.infer_shapes(operator.program, sizes)
        assert {n: (tuple(low), tuple(extents)) for n, (low, extents) in found.items()} == expect, sizes


def reject_inputs(entry: dict[str, Any], program: Any) -> tuple[Any, ...]:
    """The entry's misfit inputs, or well-formed ones at its sizes (or at sizes that do not fit together)."""
    if "inputs" in entry:
        numpy_type = {"float": np.float32, "int32": np.int32}
        return tuple(np.ones(shape, numpy_type[t]) for t, shape in entry["inputs"])
    sizes = entry.get("sizes") or tc_cases.default_sizes(program)
    return tuple(tc_cases.make_case(entry, program, sizes).arrays.values())


@pytest.mark.parametrize("entry", entries("reject", ("core",)))
def test_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(PolycError) as caught:
        operator = compile_entry(entry)
        operator(*reject_inputs(entry, operator.program))
    assert caught.value.diagnostics
    assert all(d.code and d.message for d in caught.value.diagnostics)


TAKEN = ("bad_temporary", "bad_softmax_temporary", "bad_constant_left", "bad_triangular")
"""Refused upstream; temporaries, computed left sides and conditions make them programs."""


@pytest.mark.parametrize("entry", entries("reject", ("tc-only",)))
def test_upstream_refusals(entry: dict[str, Any]) -> None:
    try:
        operator = compile_entry(entry)
        sizes = entry.get("sizes") or tc_cases.default_sizes(operator.program)
        case = tc_cases.make_case(entry, operator.program, sizes)
        got = tc_cases.run(operator, case, **case.free_sizes())
    except PolycError as error:
        assert entry["id"] not in TAKEN, error
        assert error.diagnostics
        return
    tc_cases.check_results(got, tc_cases.expected_of(case), tc_cases.terms(case))


@pytest.mark.parametrize("entry", entries("warn"))
def test_warns(entry: dict[str, Any]) -> None:
    with pytest.warns(PolycWarning) as caught:
        polyc.compile(entry["text"])
    assert any(entry["warning"] in str(w.message) for w in caught)


@pytest.mark.parametrize("entry", entries("quiet"))
def test_does_not_warn(entry: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyc.compile(entry["text"])


@pytest.mark.parametrize("entry", entries("kernels", RUNNABLE))
def test_interpreter_agrees_with_itself_in_float64(entry: dict[str, Any]) -> None:
    """The oracle in the program's own types against the oracle in float64: what rounding alone may change."""
    operator = compile_entry(entry)
    case = tc_cases.make_case(entry, operator.program, entry["sizes"])
    own = interpret(case.program, case.arrays, case.sizes, case.out)
    tc_cases.check_results(own, tc_cases.expected_of(case), tc_cases.terms(case))
