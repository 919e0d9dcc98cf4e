"""ONNX's backend suite: the cases of ``cases.txt``, compiled or with the fallback as it says.

One in twelve by default; POLYC_TEST_ONNX=all runs every one."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from tests.onnx.suite import load_cases, read_list, run_case

LISTED = read_list()
STEP = 1 if os.environ.get("POLYC_TEST_ONNX") == "all" else 12
VERSION = (Path(__file__).parents[2] / "docs" / "onnx_support.md").read_text().split("(onnx ")[1].split(")")[0]


@pytest.mark.parametrize("name", sorted(LISTED)[::STEP])
def test_case_of_the_backend_suite(name: str) -> None:
    case = load_cases().get(name)
    if case is None and onnx.__version__ != VERSION:
        pytest.skip(f"onnx {onnx.__version__} has no such case")
    assert case is not None
    run_case(case, strict=LISTED[name] == "compiled")


def test_the_list_reaches_the_bars() -> None:
    assert sum(way == "compiled" for way in LISTED.values()) >= 1600
