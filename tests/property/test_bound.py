"""Random programs with random inputs bound: the same results as with all inputs given."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import polyc
from polyc.api.operator import Operator
from polyc.api.sources import FixedSource
from polyc.config import Options
from polyc.diagnostics import RangeError
from polyc.ir.tolerance import check_results, expect_results
from tests.property.pipeline import LEVELS, profile, small_thresholds
from tests.property.strategies import Case, cases


def run_bound(case: Case, names: list[str], options: Options) -> None:
    bases = {p: case.program.tensor(p).base for p in case.program.parameters}
    values = {bases[p]: case.arrays[p] for p in case.program.parameters}
    bound = Operator(FixedSource(case.program), case.program.name, options).bind(**{n: values[n] for n in names})
    out = {n: a.copy() for n, a in case.out.items()}
    free = {n: v for n, v in case.sizes.items() if n in case.program.sizes}
    given_later = {n: a for n, a in values.items() if n not in names}
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    for _ in range(2):  # compiled, then planned
        fresh = {n: a.copy() for n, a in out.items()}
        results = bound(**given_later, **({"out": fresh} if fresh else {}), **free)
        results = results if isinstance(results, tuple) else (results,)
        got = dict(zip((r.name for r in case.program.returns), results, strict=True))
        problem = check_results(got, expected)
        assert problem is None, f"{names} bound: {problem}"


@profile(60)
@given(cases(), st.data(), st.booleans())
def test_binding_changes_no_result(case: Case, data: st.DataObject, is_eager: bool) -> None:
    names = [case.program.tensor(p).base for p in case.program.parameters]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1)) if names else []
    try:
        if is_eager:
            with small_thresholds():
                run_bound(case, chosen, Options())
        else:
            run_bound(case, chosen, Options(inline=data.draw(st.booleans())))
    except RangeError:
        return  # the sizes are refused, bound or not


@profile(25)
@given(st.data(), st.sampled_from(LEVELS), st.sampled_from(["f4", "f8"]))
def test_packed_constants_of_permuted_contractions(data: st.DataObject, level: str, kind: str) -> None:
    extents = {x: data.draw(st.sampled_from([1, 2, 3, 7, 16, 17, 33, 40])) for x in "abcdef"}
    left = data.draw(st.permutations("abde"))[: data.draw(st.integers(2, 4))]  # rows a b, sums d e
    right = data.draw(st.permutations([*(x for x in "de" if x in left), *data.draw(st.sampled_from(["c", "cf"]))]))
    output = data.draw(st.permutations([x for x in "abcf" if x in left or x in right]))
    subscripts = f"{''.join(left)},{''.join(right)}->{''.join(output)}"
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal([extents[x] for x in term]).astype(kind) for term in (left, right))
    operator = polyc.einsum_operator(subscripts, target=level)
    expected = np.einsum(subscripts, a.astype("f8"), b.astype("f8"))
    tolerance = 1e-4 if kind == "f4" else 1e-11
    for name, bound, given_later in (("operand0", a, b), ("operand1", b, a)):
        got = operator.bind(**{name: bound})(given_later)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 10, err_msg=f"{subscripts}, {name} bound")
