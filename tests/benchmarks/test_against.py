"""``python -m benchmarks against``: this checkout beside itself; no time is asserted."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.against import HERE, Checkout, main


def test_a_checkout_takes_turns_with_itself():
    result = CliRunner().invoke(main, [str(HERE), "softmax", "--threads", "1", "--rounds", "1", "--below", "0"])
    assert result.exit_code == 0, result.output
    assert "1 thread(s): geometric mean" in result.output
    assert "of 1" in result.output


@pytest.mark.parametrize("dynamic", [[], ["--dynamic"]])
def test_machine_code_of_both_runs_on_the_same_arrays(dynamic):
    result = CliRunner().invoke(
        main, [str(HERE), "softmax", "--code", "--threads", "1", "--rounds", "1", "--below", "0", *dynamic]
    )
    assert result.exit_code == 0, result.output
    assert "of 1" in result.output


def test_cold_lowering_is_counted_on_both_sides():
    result = CliRunner().invoke(main, [str(HERE), "softmax", "--rounds", "1", "--lower"])
    assert result.exit_code == 0, result.output
    assert "lowering 1 workloads" in result.output


def test_a_worker_says_what_failed():
    with pytest.raises(RuntimeError, match="KeyError"):
        Checkout(HERE, {"target": "host"}).ask("load", "no_such_workload")
