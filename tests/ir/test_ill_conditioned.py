"""Results that are mostly rounding error: correct kernels pass, wrong ones do not, and what cannot be decided is said."""

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cli import main
from polyc.ir.tolerance import Expectation, check_results, expect_results, find_undecided

LU = """def lu({0}(N,N) A) -> (B) {{
  B(0,i,j) = A(i,j) where i in 0:N, j in 0:N
  B(k,i,j) = i >= k && j >= k ? B(k-1,i,j) - B(k-1,i,k-1) / B(k-1,k-1,k-1) * B(k-1,k-1,j) : B(k-1,i,j)
    where k in 1:N, i in 0:N, j in 0:N
}}"""
SOLVE = """def solve({0}(N,N) L, {0}(N) b) -> (x) {{
  s(i) +=! (j < i ? L(i,j) * x(j) : {0}(0)) where i in 0:N, j in 0:N
  x(i) = (b(i) - s(i)) / L(i,i) where i in 0:N
}}"""
LOGISTIC = """def logistic({0}(N) a) -> (x) {{
  x(0,i) = a(i) where i in 0:N
  x(t,i) = {0}(3.9) * x(t-1,i) * ({0}(1) - x(t-1,i)) where t in 1:40, i in 0:N
}}"""
DIFFERENCE = "def difference({0}(N,M) a, {0}(N,M) b) -> (d) {{ s(i) +=! a(i,k)\n r(i) +=! b(i,k)\n d(i) = s(i) - r(i) }}"
SUM = "def total({0}(N,M) a) -> (s) {{ s(i) +=! a(i,k) }}"

TYPES = pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("double", np.float64)])


def expect(text: str, name: str, **arrays: np.ndarray) -> Expectation:
    return expect_results(polyc.compile(text.format(name)).program, arrays)


@TYPES
def test_lu_without_pivots(name: str, dtype: type) -> None:
    n, rng = 24, np.random.default_rng(1003)
    a = rng.standard_normal((n, n)).astype(dtype)
    a[3, 3] = a[3, :3] @ np.linalg.solve(a[:3, :3].astype(float), a[:3, 3]) + 1e-4  # f32 loses almost everything at this pivot

    def factor(swap_at: int = 0) -> np.ndarray:
        steps = [a]
        for k in range(1, n):
            b, last = steps[-1].copy(), steps[-1]
            row = last[:, k - 1] if k == swap_at else last[k - 1]
            b[k:, k:] -= np.multiply.outer(last[k:, k - 1], row[k:]) * (dtype(1) / last[k - 1, k - 1])
            steps.append(b)
        return np.array(steps)

    expected = expect(LU, name, A=a)
    assert check_results({"B": factor()}, expected) is None
    assert (find_undecided({"B": factor()}, expected) is not None) == (dtype == np.float32)
    assert check_results({"B": factor(2)}, expected) is not None


@TYPES
def test_triangular_solve(name: str, dtype: type) -> None:
    n, rng = 60, np.random.default_rng(1)
    lower, b = np.tril(rng.standard_normal((n, n))).astype(dtype), rng.standard_normal(n).astype(dtype)

    def solve(missing: int = -1) -> np.ndarray:
        x = b.copy()
        for j in range(n):
            x[j] /= lower[j, j]
            x[j + 1 :] -= np.where(np.arange(j + 1, n) == missing, 0, lower[j + 1 :, j] * x[j])
        return x

    expected = expect(SOLVE, name, L=lower, b=b)
    assert check_results({"x": solve()}, expected) is None
    for row in (3, 20):
        assert check_results({"x": solve(row)}, expected) is not None


@TYPES
def test_a_chaotic_recurrence(name: str, dtype: type) -> None:
    a = np.random.default_rng(0).random(5).astype(dtype)

    def iterate(wrong: int = -1) -> np.ndarray:
        x = [a]
        for t in range(1, 40):
            x.append(dtype(3.91 if t == wrong else 3.9) * ((dtype(1) - x[-1]) * x[-1]))
        return np.array(x)

    expected = expect(LOGISTIC, name, a=a)
    assert check_results({"x": iterate()}, expected) is None
    assert check_results({"x": iterate(5)}, expected) is not None
    undecided = find_undecided({"x": iterate()}, expected)
    assert (undecided is not None) == (dtype == np.float32)  # 40 steps lose all of 24 bits, not of 53


@TYPES
def test_a_difference_of_large_sums(name: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a = rng.random((4, 3000)).astype(dtype)
    b = rng.permuted(a, axis=1)
    b[0] *= dtype(0.5)
    b[1:, 0] += 50 * np.finfo(dtype).eps
    expected = expect(DIFFERENCE, name, a=a, b=b)
    d = a[:, ::-1].cumsum(1)[:, -1] - b[:, ::-1].cumsum(1)[:, -1]
    assert check_results({"d": d}, expected) is None
    assert "3 of 4 elements of d (d[1] is" in str(find_undecided({"d": d}, expected))
    assert check_results({"d": d + np.array([0.5, 0, 0, 0], dtype)}, expected) is not None


@TYPES
def test_a_sum_that_is_well_conditioned_has_a_narrow_tolerance(name: str, dtype: type) -> None:
    a = np.random.default_rng(0).random((50, 1000)).astype(dtype)
    expected, s = expect(SUM, name, a=a), a[:, ::-1].cumsum(1)[:, -1]
    assert check_results({"s": s}, expected) is None
    assert find_undecided({"s": s}, expected) is None
    s[17] += 1000 * np.spacing(s[17])
    assert "s[17]" in str(check_results({"s": s}, expected))


def test_verified_is_said_of_what_was_decided_only(tmp_path) -> None:
    rng, paths = np.random.default_rng(0), []
    a = rng.random((40, 3000)).astype(np.float32)
    for k, array in enumerate((a, rng.permuted(a, axis=1))):
        paths.append(str(tmp_path / f"{k}.npy"))
        np.save(paths[-1], array)
    (tmp_path / "d.tc").write_text(DIFFERENCE.format("float"))
    operator = polyc.compile(DIFFERENCE.format("float"), verify=True)
    with pytest.warns(polyc.PolycWarning, match=r"argument-ill-conditioned.* of 40 elements of d \(d\["):
        operator(*map(np.load, paths))
    done = CliRunner().invoke(main, ["run", str(tmp_path / "d.tc"), "--input", paths[0], "--input", paths[1], "--verify"])
    assert done.exit_code == 0, done.stderr
    assert "not verified: rounding errors hide" in done.stdout and "warning[argument-ill-conditioned]" in done.stderr
