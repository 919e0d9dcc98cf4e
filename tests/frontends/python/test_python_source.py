# ruff: noqa: F821
"""Where the text of a function comes from, and what its names mean outside of it."""

import functools
import importlib.util
import os
import textwrap

import numpy as np
import pytest

from polyc.diagnostics import SemanticError
from polyc.frontends.python import Index, indices, read_function, read_signature
from polyc.ir.expr import Call, Const, Size, int_const
from polyc.ir.types import BOOL, F32, I64
from tests.frontends.python.evaluate import errors_of, run

STEPS = 7


def load_module(path, text, name="op_under_test"):
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep(function):
    return function


def test_spans_point_into_the_file(tmp_path):
    text = """
    import numpy as np

    class Holder:
        @staticmethod
        def op(X: "f32[N]"):
            é[i] = X[i]; Y[i] = é[i] + Q[i]
            return Y
    """
    module = load_module(tmp_path / "ops.py", text)
    with pytest.raises(SemanticError) as caught:
        read_function(module.Holder.op)
    span = caught.value.diagnostics[0].span
    assert span.source.name == str(tmp_path / "ops.py")
    assert span.line_column() == (7, 36)
    assert span.source.text[span.start : span.end] == "Q[i]"
    assert "7 |         é[i] = X[i]; Y[i] = é[i] + Q[i]" in str(caught.value)


def test_a_changed_file_is_an_error(tmp_path):
    path = tmp_path / "ops.py"
    text = """
    from polyc import where

    def f(X: "f32[N]", *, k=2):
        with where(i < 3):
            Y[i] = np.exp(X[i]) * k
        return Y
    """
    function = load_module(path, text).f
    read_function(function)
    for old, new in [("* k", "+ k"), ("3", "4"), ("f32", "f64"), ("def f", "\n\n    def f"), ("return Y", "return (")]:
        path.write_text(textwrap.dedent(text.replace(old, new)))
        os.utime(path, (1, 1 + len(new) + ord(new[0])))
        with pytest.raises(SemanticError, match="changed after the function was defined") as caught:
            read_function(function)
        assert caught.value.code == "semantic-source-stale"
    path.write_text(textwrap.dedent(text))
    os.utime(path, (2, 2))
    assert read_function(function).program.name == "f"
    path.unlink()
    with pytest.raises(SemanticError):
        read_function(function)


def test_a_missing_source_is_an_error():
    names = {}
    exec("def f(X: 'f32[N]'):\n    Y[i] = X[i]\n    return Y", names)
    with pytest.raises(SemanticError, match="pass its source as a string") as caught:
        read_function(names["f"])
    assert caught.value.code == "semantic-source-missing"


@pytest.mark.parametrize("thing", [len, lambda x: x, int, functools.partial(print)])
def test_things_that_are_no_functions(thing):
    with pytest.raises(SemanticError, match="functions written with def") as caught:
        read_function(thing)
    assert caught.value.code == "semantic-not-a-function"


def test_decorators_wrappers_and_closures_are_no_obstacle():
    i, j = indices("i j")
    row = Index("row")

    @keep
    @keep
    def total(X: "f64[M, N]"):
        S[row] += X[row, i] * (i + 1)
        T[i, j] = X[i, j] + 1
        return S, T

    @functools.wraps(total)
    def wrapper(*args):
        return total(*args)

    x = np.arange(6.0).reshape(2, 3)
    for function in (total, wrapper):
        s, t = run(function, x)
        np.testing.assert_array_equal(s, x @ [1, 2, 3])
        np.testing.assert_array_equal(t, x + 1)
    assert read_function(total).program.statements[0].indices == ("row", "i")


def test_future_annotations(tmp_path):
    text = """
    from __future__ import annotations
    import numpy as np

    Matrix = "f32[M, N]"

    def f(X: "f32[M, N]", Y: Matrix, Z: f32[M, N], u: np.ndarray, *, k: int = 2) -> np.ndarray:
        R[i, j] = X[i, j] + Y[i, j] + Z[i, j] * k + u
        return R
    """
    function = load_module(tmp_path / "ops.py", text).f
    signature = read_signature(function)
    assert [p.annotation and p.annotation.dtype for p in signature.parameters] == [F32, F32, F32, None]
    program = read_function(function, {"u": (F32, 0)}).program
    assert program.sizes == ("M", "N")


def test_source_strings():
    for source in (
        "def f(X: 'f32[N]'):\n    Y[i] = X[i]\n    return Y",
        "    def f(X: 'f32[N]'):\n        Y[i] = X[i]\n        return Y\n",
        "import polyc\n@polyc.op\ndef f(X: 'f32[N]'):\r\n\tY[i] = X[i]\r\n\treturn Y",
        "# a comment\n'a text'\ndef f(X: 'f32[N]'): Y[i] = X[i]; return Y",
    ):
        assert read_function(source).program.sizes == ("N",)


def test_a_name_alone_as_a_subscript_is_an_index_whatever_it_is_outside():
    i, j = 3, np.int64(7)

    def f(X: "f32[N, M]"):
        Y[i] += X[i, j] * j
        return Y

    assert i and j
    assert read_function(f).program.statements[0].indices == ("i", "j")


def test_a_name_that_is_a_number_outside_is_never_guessed():
    width = 3.5
    array = np.zeros(3)

    def f(X: "f32[N]"):
        Y[i] = X[i] * width + STEPS + STEPS
        Z[array] = X[array]
        return Y, Z

    assert width and array.size
    with pytest.raises(SemanticError) as caught:
        read_function(f)
    assert [d.code for d in caught.value.diagnostics] == ["semantic-ambiguous-name"] * 3
    assert "3.5" in str(caught.value) and "7" in str(caught.value) and "index" in str(caught.value)

    def in_range(X: "f32[N]"):
        with where(k < STEPS):
            Y[i] += X[i + k]
        return Y

    with pytest.raises(SemanticError) as caught:
        read_function(in_range)
    assert [d.code for d in caught.value.diagnostics] == ["semantic-ambiguous-name"]

    def g(X: "f32[STEPS]", *, width=2):
        Y[i] = X[i] * width
        return Y

    assert read_function(g).program.sizes == ("STEPS",)  # a size, as the annotation says


def test_an_index_object_cannot_stand_for_a_tensor():
    k = Index("X")

    def f(X: "f32[N]"):
        Y[k] = X[k]
        return Y

    assert k.name == "X"
    with pytest.raises(SemanticError, match="also names something else"):
        read_function(f)


def test_indices():
    assert indices("i, j k") == (Index("i"), Index("j"), Index("k"))
    for wrong in ("i i", "1", "a-b"):
        with pytest.raises(ValueError):
            indices(wrong)
    with pytest.raises(TypeError, match="no value"):
        [0, 1][Index("i")]


def test_read_signature():
    signature = read_signature(
        "def f(X: 'f32[M, K]', n: 'int64', c: 'float64[3, K + 1]', t: 'np.bool_[]', *, size=3, eps=1e-5, on=True, k): pass"
    )
    assert signature.name == "f"
    assert [p.name for p in signature.parameters] == ["X", "n", "c", "t"]
    assert signature.parameters[0].annotation.shape == (Size("M"), Size("K"))
    assert signature.parameters[1].annotation.dtype == I64 and signature.parameters[1].annotation.shape == ()
    assert signature.parameters[2].annotation.shape == (int_const(3), Call("add", (Size("K"), int_const(1))))
    assert signature.parameters[3].annotation.dtype == BOOL
    assert [(c.name, c.value) for c in signature.constants] == [("size", 3), ("eps", 1e-5), ("on", True), ("k", None)]
    assert signature.sizes == ("M", "K")


def test_constants_in_extents():
    source = "def f(X: 'f32[N, width]', *, width=3):\n    Y[i] += X[i, k]\n    return Y"
    assert read_function(source).program.tensor("X").shape == (Size("N"), Const(3))
    assert read_function(source, constants={"width": np.int64(5)}).program.tensor("X").shape == (Size("N"), Const(5))
    errors = errors_of(source, constants={"width": 2.5})
    assert errors[0].code == "semantic-annotation"


def test_sizes_of_parameters_without_annotation_are_fresh():
    source = "def f(X, X_0):\n    Y[i] = X[i, X_1] * X_0\n    return Y"
    with pytest.raises(SemanticError):
        read_function(source, {"X": (F32, 2), "X_0": (F32, 0)})
    program = read_function(source.replace("Y[i]", "Y[i, X_1]"), {"X": (F32, 2), "X_0": (F32, 0)}).program
    assert program.sizes == ("X_0_", "X_1_")
    assert program.tensor("X").shape == (Size("X_0_"), Size("X_1_"))


def test_a_return_annotation_declares_extents():
    source = "def f(X: 'f32[N]') -> ('f32[N]', 'f32'):\n    Y[i] = X[i]\n    s += X[i]\n    return Y, s"
    program = read_function(source).program
    assert program.tensor("Y").shape == (Size("N"),) and program.tensor("s").shape == ()
    assert read_function(source.replace("('f32[N]', 'f32')", "np.ndarray")).program.tensor("Y").shape is None


def test_functions_of_the_program_around_cannot_be_called():
    def f(X: "f32[N]"):
        Y[i] = run(X[i])
        return Y

    with pytest.raises(SemanticError, match="arguments of run cannot be told one by one"):
        read_function(f)


@pytest.mark.parametrize("annotation, marked", [("f33[N]", "f33"), ("f32[2 * QQ]", "QQ"), ("f128[N]", "f128")])
def test_carets_point_into_annotations(annotation, marked):
    found = errors_of(f"def f(X: '{annotation}'):\n    Y[i] = X[i]\n    return Y")
    span = found[0].span
    assert span.source.text[span.start : span.end] == marked
