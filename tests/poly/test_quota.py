"""Budgets of isl operations depend on the work inside them and on nothing before."""

from __future__ import annotations

import islpy
import pytest

from polyc.diagnostics import CompileBudgetError
from polyc.poly.isl import operation_quota


def work(n: int) -> None:
    for _ in range(n):
        islpy.Set("[N] -> { [i, j, k] : 0 <= i < j < k < N and i + j < 2k }").complement().coalesce()


def test_operations_before_the_quota_do_not_count() -> None:
    work(100)
    with operation_quota(5_000, "a small step"):
        work(1)


def test_overrun_is_a_named_error_and_leaves_the_context_usable() -> None:
    with (
        pytest.raises(CompileBudgetError, match="a large step needs more than 50 isl operations"),
        operation_quota(50, "a large step"),
    ):
        work(1)
    work(1)
