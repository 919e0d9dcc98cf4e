"""Running a kernel beside the reference interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from polyc.diagnostics import ArgumentError, Diagnostic, InternalError, PolycWarning, user_stacklevel
from polyc.ir.program import Program
from polyc.runtime.plan import Plan


def run_verified(
    program: Program,
    plan: Plan,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray | None],
    sizes: Mapping[str, int],
) -> tuple[np.ndarray, ...]:
    """Run `plan` and compare every element with the interpreter: `internal-verify` names the first that differs, the warning
    `argument-ill-conditioned` the first that no comparison can decide.

    The interpreter goes first, since the kernel may overwrite what it reads.  Its errors (ranges, subscripts) are the
    user's, and stand; so is a monoid that is none (`argument-monoid-law`).
    """
    from polyc.ir.tolerance import check_results, expect_results, find_undecided

    arrays = dict(zip(program.parameters, inputs, strict=True))
    given = zip(program.returns, outputs, strict=True)
    initial = {r.name: o for r, o in given if o is not None and r.initial is not None}
    expected = expect_results(program, arrays, dict(sizes), initial)
    results = plan.run(inputs, [o for o in outputs if o is not None])
    got = {r.name: array for r, array in zip(program.returns, results, strict=True)}
    difference = check_results(got, expected)
    if difference is not None:
        _blame_monoids(program)
        raise InternalError(
            Diagnostic(
                "internal-verify",
                f"{program.name} at {_label(sizes)}: the kernel and the reference interpreter differ: {difference}",
                None,
                "this is a bug in polyc; please report it with the operator and these sizes",
            )
        )
    undecided = find_undecided(got, expected)
    if undecided is not None:
        message = f"{program.name} at {_label(sizes)}: not verified where rounding errors are as large: {undecided}"
        help = "the other elements agree; use a wider type, a stable algorithm (pivots), or better conditioned inputs"
        warnings.warn(
            PolycWarning(Diagnostic("argument-ill-conditioned", message, None, help, "warning")), stacklevel=user_stacklevel()
        )
    return results


def _blame_monoids(program: Program) -> None:
    """A user's monoid that is none gives other values in another order: then the kernel is not to blame."""
    from polyc.ir.monoid_laws import find_broken_law

    for s in program.statements:
        if s.reduction is None or s.reduction.monoid is None:
            continue
        broken = find_broken_law(s.reduction.monoid)
        if broken is not None:
            message = f"{broken}; so what it makes of many values depends on their order"
            help = "correct the monoid, or keep the order of the source with reassociate=False, or write a recurrence"
            raise ArgumentError(Diagnostic("argument-monoid-law", message, s.span, help))


def _label(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n}={v}" for n, v in sizes.items()) or "no sizes"
