"""What a prompt and an editor show of operators, and small things that people pass there."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import inspect

import numpy as np
import pytest

import polyc
from polyc.runtime import threads
from tests.negative.support import refuse

ADD = "def add(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }"
X = np.arange(5, dtype=np.float32)


@polyc.op
def scaled(x: "f32[N]", s: "f32", *, factor=2):
    y[i] = factor * s * x[i]
    return y


def test_what_a_prompt_shows_of_stages_and_programs_fits_a_screen():
    operator = polyc.compile(ADD)
    assert repr(operator.lower(X, X)) == "<polyc stages of add N=5: program, scop, sched, loops, ll, s>"
    assert str(operator.program) == operator.lower(X, X).as_text("program")


def test_editors_see_the_inputs_of_an_operator():
    operator = polyc.compile(ADD)
    assert str(inspect.signature(operator)) == "(x, y, *, out=None, N=None)"
    assert str(inspect.signature(operator.bind(y=X))) == "(x, *, out=None, N=None)"
    shown = inspect.signature(scaled).parameters
    assert list(shown) == ["x", "s", "factor", "out", "N"] and shown["factor"].default == 2
    assert "source" in inspect.signature(polyc.Operator).parameters


def test_parameters_with_words_of_python_as_names_have_some_signature():
    operator = polyc.compile("def f(float(N) lambda, float(N) out) -> (y) { y(i) = lambda(i) + out(i) }")
    assert inspect.signature(operator) is not None
    assert np.array_equal(operator(X, X), X + X)


def test_ranges_are_numbers_like_those_of_a_list():
    assert np.array_equal(polyc.compile(ADD)(range(5), X), X + X)


def test_integers_of_numpy_are_numbers_of_threads_and_bytes():
    before = polyc.memory.limit()
    try:
        polyc.set_num_threads(np.int64(1))
        assert type(polyc.get_num_threads()) is int and polyc.get_num_threads() == 1
        polyc.memory.set_limit(np.int64(1 << 20))
        assert polyc.memory.limit() == 1 << 20
        refuse(lambda: threads.check_num_threads(np.bool_(True)), "argument-type-threads")
    finally:
        polyc.set_num_threads(None)
        polyc.memory.set_limit(before)


def test_the_way_out_fits_the_tensor_that_cannot_be_read():
    add = polyc.compile(ADD)
    refuse(lambda: add(X.astype("c8"), X), "argument-type-dtype", "x.real")
    torch = pytest.importorskip("torch")
    refuse(lambda: add(torch.ones(5, device="meta"), X), "argument-type-dlpack", "has a shape only")
    refuse(lambda: add(torch.ones(5).to(torch.float8_e4m3fn), X), "argument-type-dlpack", "x.to(torch.float32)")


def test_a_session_shows_what_it_takes():
    onnx = pytest.importorskip("onnx")
    import polyc.onnx

    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    assert repr(polyc.onnx.load(onnx.parser.parse_model(text))) == "<polyc session (x: float[n, 3]) -> (y: float[n, 3])>"
