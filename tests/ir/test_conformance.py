"""The programs of Tensor Comprehensions' repository through texts, verification and ranges at concrete sizes.

The data is outside this repository; where it is absent the tests skip and say so."""

import warnings
from typing import Any

import pytest

from polyc.diagnostics import PolycWarning
from polyc.frontends.tc import read_tc
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Program
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.verify import verify_program
from tests.conformance.tc_cases import entries


def read_entry(entry: dict[str, Any]) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolycWarning)
        programs = read_tc(entry["text"])
    return next((p for p in programs if p.name == entry.get("entry")), programs[0])


@pytest.mark.parametrize("entry", entries("kernels", ("core", "gather", "inplace")))
def test_programs_are_well_formed_and_read_back(entry: dict[str, Any]) -> None:
    program = read_entry(entry)
    verify_program(program)
    assert parse_program(format_program(program)) == program
    solve_ranges(program, entry["sizes"])


@pytest.mark.parametrize("entry", entries("inference"))
def test_ranges_are_the_expected_ones(entry: dict[str, Any]) -> None:
    program = read_entry(entry)
    sizes = entry["sizes"]
    intervals = solve_ranges(program, sizes).tensors
    names = sizes | {"min": min, "max": max}
    for name, expected in entry["expect"].items():
        version = next(r.version for r in program.returns if r.name == name)
        wanted = [
            (eval(str(low), {}, names), eval(str(extent), {}, names))
            for low, extent in zip(expected["mins"], expected["extents"], strict=True)
        ]
        assert [(low, up - low) for low, up in intervals[version]] == wanted
