"""Integer linear programs for HiGHS: LP relaxation first, rounding, deterministic budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyc.code_limits import MAX_REMEMBERED
from polyc.digest import sha256

INTEGRAL = 1e-6


@dataclass(slots=True)
class Problem:
    """Minimise ``cost . x`` subject to ``lower <= x <= upper`` and ``low <= row . x <= high``; `is_integer` per variable."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    is_integer: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, list[tuple[int, float]]]] = field(default_factory=list)

    def add_variable(self, cost: float, lower: float, upper: float, is_integer: bool = True) -> int:
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.is_integer.append(is_integer)
        return len(self.cost) - 1

    def add_row(self, low: float, high: float, terms: list[tuple[int, float]]) -> None:
        merged: dict[int, float] = {}
        for variable, factor in terms:
            merged[variable] = merged.get(variable, 0.0) + factor
        self.rows.append((low, high, [(v, f) for v, f in merged.items() if f]))


@dataclass(slots=True)
class Budget:
    """What a schedule may cost, in units that do not depend on the machine.  `n_solves` counts what was used."""

    max_solves: int = 4000
    max_iterations: int = 200_000
    max_nodes: int = 2_000
    max_size: int = 6_000
    """Variables times rows of one problem, in hundreds."""
    n_solves: int = 0


def solve(problem: Problem, budget: Budget) -> list[int] | None:
    """An optimal solution rounded to integers (only meaningful where `is_integer`), or None: infeasible, or over budget.

    HiGHS works with tolerances: what comes back is a proposal that the caller checks exactly.
    """
    budget.n_solves += 1
    size = len(problem.cost) * max(1, len(problem.rows))
    if budget.n_solves > budget.max_solves or size > 100 * budget.max_size:
        return None
    values = _run(problem, budget, relaxed=True)
    if values is None:
        return None
    if any(i and abs(v - round(v)) > INTEGRAL for v, i in zip(values, problem.is_integer, strict=True)):
        values = _run(problem, budget, relaxed=False)
        if values is None:
            return None
    return [round(v) for v in values]


_solved: dict[bytes, list[float] | None] = {}
"""Solutions by what was asked: the parts of a recurrence, its versions and its rungs often ask for the same rows."""


def _run(problem: Problem, budget: Budget, relaxed: bool) -> list[float] | None:
    asked = repr((problem, budget.max_iterations, budget.max_nodes, relaxed))
    key = sha256(asked.encode()).digest()
    if key not in _solved:
        if len(_solved) == MAX_REMEMBERED:
            _solved.clear()
        _solved[key] = _ask_highs(problem, budget, relaxed)
    return _solved[key]


def _ask_highs(problem: Problem, budget: Budget, relaxed: bool) -> list[float] | None:
    import highspy  # a heavy import that most compilations never need

    highs: Any = highspy.Highs.__bases__[0]()  # the class itself enables callbacks, and 1.16 prints a banner at that
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("simplex_iteration_limit", budget.max_iterations)
    highs.setOptionValue("mip_max_nodes", budget.max_nodes)
    highs.setOptionValue("mip_rel_gap", 0.0)  # small costs decide between solutions that are as good: the same in all releases
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(problem.cost), len(problem.rows)
    lp.col_cost_ = np.array(problem.cost)
    lp.col_lower_, lp.col_upper_ = np.array(problem.lower), np.array(problem.upper)
    lp.row_lower_ = np.array([low for low, _, _ in problem.rows])
    lp.row_upper_ = np.array([high for _, high, _ in problem.rows])
    starts = np.cumsum([0] + [len(terms) for _, _, terms in problem.rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_ = starts.astype(np.int32)
    lp.a_matrix_.index_ = np.array([v for _, _, terms in problem.rows for v, _ in terms], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([f for _, _, terms in problem.rows for _, f in terms], dtype=float)
    if not relaxed:
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if i else kinds.kContinuous for i in problem.is_integer]
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return [float(v) for v in highs.getSolution().col_value]
