"""The measure of errors itself, and its command line on few arguments."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.ulp import main, ulps


def test_units_are_those_of_the_exact_value():
    one, step = np.float32(1), np.float32(2.0**-23)
    got = np.array([one, one + step, one - step / 2, 3 * step], "f4")
    exact = np.array([1.0, 1.0, 1.0, 4.0 * step])
    np.testing.assert_array_equal(ulps(got, exact), [0, 1, 0.5, 2**21])


def test_kinds_and_signs_of_zeros_count():
    got = np.array([np.nan, np.inf, -0.0, 0.0, np.nan, np.finfo("f4").max], "f4")
    exact = np.array([np.nan, np.inf, -0.0, -0.0, 1.0, np.inf])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(ulps(got, exact), [0, 0, 0, np.inf, np.inf, 1])


def test_denormal_numbers_have_one_unit():
    smallest = np.float32(2.0**-149)
    np.testing.assert_array_equal(ulps(np.array([3 * smallest]), np.array([float(smallest)])), [2])


def test_command_line():
    pytest.importorskip("mpmath")
    result = CliRunner().invoke(main, ["exp", "atan2", "--stride", "16381", "--sample", "80"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 4
    assert all(0 < float(line.split()[2]) <= 4 for line in lines)


def test_unknown_function():
    result = CliRunner().invoke(main, ["sine"])
    assert result.exit_code == 2
    assert "sine" in result.output
