"""float16 and bfloat16 through the public functions: arrays, tensors, einsum, files, and what is said where they do not fit."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import polyc
from polyc.ir.halves import narrow, widen
from polyc.ir.types import BF16, F16

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@polyc.op
def layer(X, W, b):
    H[m, n] += X[m, k] * W[n, k]  # noqa: F821
    Y[m, n] = maximum(H[m, n] + b[n], 0) * 0.1  # noqa: F821
    return Y  # noqa: F821


def _arguments(dtype: np.dtype) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.integers(-8, 9, s) / 8).astype(dtype) for s in ((5, 33), (17, 33), (17,))]


@pytest.mark.parametrize("name", TYPES)
def test_a_decorated_function_gives_what_it_was_given(name):
    dtype = TYPES[name]
    x, w, b = _arguments(dtype)
    got = layer(x, w, b)
    assert got.dtype == dtype
    h = (x.astype(np.float32) @ w.astype(np.float32).T).astype(dtype).astype(np.float32)  # a temporary is rounded
    assert np.array_equal(got, (np.maximum(h + b.astype(np.float32), 0) * np.float32(0.1)).astype(dtype))


@pytest.mark.parametrize("name", TYPES)
def test_torch_tensors_in_and_out(name):
    torch = pytest.importorskip("torch")
    arguments = _arguments(TYPES[name])
    tensors = [torch.from_numpy(a.astype(np.float32)).to(getattr(torch, name)) for a in arguments]
    expected = layer(*arguments)
    assert np.array_equal(layer(*tensors), expected)
    out = torch.empty(5, 17, dtype=getattr(torch, name))
    assert layer(*tensors, out=out) is out
    assert np.array_equal(out.float().numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("name", TYPES)
def test_einsum(name):
    a, b = (x.astype(TYPES[name]) for x in (np.arange(12).reshape(3, 4) / 4, np.arange(8).reshape(4, 2) / 8))
    exact = np.einsum("ij,jk->ik", a.astype(np.float64), b.astype(np.float64))
    got = polyc.einsum("ij,jk->ik", a, b)
    assert got.dtype == TYPES[name]
    assert np.array_equal(got, exact.astype(TYPES[name]))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("subscripts", ["ij->ji", "ij->ij", "ii->i", "ij,ij->ij", "i,j->ij", "ij,->ij"])
def test_einsum_without_a_sum(name, subscripts, monkeypatch):
    monkeypatch.setenv("POLYC_EINSUM", "compile")
    shapes = [(3,) * len(term) for term in subscripts.split("->")[0].split(",")]
    arrays = [np.asarray(np.arange(1, 1 + int(np.prod(s))) / 3).astype(TYPES[name]).reshape(s) for s in shapes]
    got = polyc.einsum(subscripts, *arrays)
    assert got.dtype == TYPES[name]
    exact = np.einsum(subscripts, *(a.astype(np.float32) for a in arrays))
    np.testing.assert_array_equal(got, exact.astype(TYPES[name]))


def test_einsum_rounds_no_intermediate_product():
    a = np.full(3, 300, np.float16)  # 300 * 300 is infinite in float16
    assert polyc.einsum("i,i,i->", a, a, np.full(3, 2.0**-10, np.float16)) == np.float16(3 * 300 * 300 / 1024)


@pytest.mark.parametrize("other, result", [("i1", "f2"), ("u1", "f2"), ("?", "f2"), ("i2", "f4"), ("i4", "f8"), ("f4", "f4")])
def test_types_meet_as_numpys(other, result):
    @polyc.op
    def add(A, B):
        C[i] = A[i] + B[i]  # noqa: F821
        return C  # noqa: F821

    x, y = np.arange(4, dtype=np.float16), np.ones(4, other)
    assert add(x, y).dtype == np.dtype(result) == (x + y).dtype
    assert np.array_equal(add(x, y), x + y)
    wide = np.dtype(ml_dtypes.bfloat16) if result == "f2" else np.dtype(result)
    assert add(x.astype(ml_dtypes.bfloat16), y).dtype == wide


def test_the_two_meet_in_float32():
    program = "def f(float16(N) A, bfloat16(N) B) -> (O) { O(i) = A(i) * B(i) }"
    assert polyc.compile(program)(np.ones(2, np.float16), np.ones(2, ml_dtypes.bfloat16)).dtype == np.float32


def test_unsupported_types_list_what_is_supported():
    with pytest.raises(
        polyc.ArgumentTypeError, match="element types are float16, bfloat16, float32, float64, complex64"
    ) as error:
        polyc.compile("def f(float(N) A) -> (O) { O(i) = A(i) }")(np.ones(2, np.longdouble))
    assert error.value.diagnostics[0].code == "argument-type-dtype"


def test_arrays_of_raw_bytes_are_bfloat16_where_that_is_declared():
    """What `numpy.load` gives for a file that `numpy.save` wrote."""
    f = polyc.compile("def f(bfloat16(N) A) -> (O) { O(i) = float(A(i)) }")
    x = narrow(np.arange(5) / 4, BF16)
    assert np.array_equal(f(x.view("V2")), np.arange(5) / 4)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_numbers_are_rounded_and_integers_must_fit(dtype):
    f = polyc.compile(f"def f({dtype.label} a, float(N) X) -> (O) {{ O(i) = float(a) * X(i) }}")
    one = np.ones(1, np.float32)
    assert f(0.1, one)[0] == widen(narrow(0.1, dtype))[()]
    with pytest.raises(polyc.ArgumentTypeError, match="cannot hold exactly"):
        f(4097, one)


def test_without_ml_dtypes_bfloat16_tensors_still_work_and_results_say_what_is_missing():
    pytest.importorskip("torch")
    script = """
        import sys
        sys.modules["ml_dtypes"] = None  # import fails
        import numpy as np, torch, polyc
        f = polyc.compile("def f(bfloat16(N) A) -> (O, P) { O(i) = bfloat16(A(i) * 2.0) P(i) = float(A(i)) }", verify=True)
        x = torch.tensor([0.5, -3.0], dtype=torch.bfloat16)
        try:
            f(x)
        except polyc.ArgumentTypeError as error:
            print(error.diagnostics[0].code)
        out = torch.empty(2, dtype=torch.bfloat16), np.empty(2, np.float32)
        f(x, out=out)
        print(out[0].tolist(), out[1].tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["argument-type-bfloat16", "[1.0, -6.0] [0.5, -3.0]"], done.stderr


def test_files_of_both_types(tmp_path):
    (tmp_path / "f.tc").write_text("def f(bfloat16(N) A, float16(N) B) -> (O) { O(i) = bfloat16(A(i) * B(i)) }")
    np.save(tmp_path / "a.npy", narrow(np.arange(4), BF16))
    np.save(tmp_path / "b.npy", np.full(4, 2, np.float16))
    command = [
        sys.executable,
        "-m",
        "polyc",
        "run",
        "f.tc",
        "--input",
        "a.npy",
        "--input",
        "b.npy",
        "--verify",
        "--output",
        "out",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "O: bfloat16[4] min 0.0 max 6.0 sum 12" in done.stdout, done.stdout + done.stderr
    assert np.array_equal(widen(np.load(tmp_path / "out" / "O.npy").view(BF16.numpy)), [0, 2, 4, 6])
