"""Sequences of different lengths (``ragged``) against loops over them, and what is refused and where."""

# ruff: noqa: F722, F821, UP037
from __future__ import annotations

import functools
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cli import main
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.runtime.ragged import Packed

Array = np.ndarray[Any, Any]

LENGTHS = [(3, 0, 5, 1), (), (0, 0), (7,), (0, 2)]
"""Of sequences: empty ones, none at all, one giant."""


@functools.cache
def operator(text: str, dynamic: bool = True) -> Any:
    return polyc.compile(text, dynamic=dynamic)


def draw(lengths: tuple[int, ...], *inner: int, dtype: Any = np.float32, ends: Any = np.int32) -> Packed:
    offsets = np.cumsum([0, *lengths]).astype(ends)
    values = np.random.default_rng([*lengths, *inner]).integers(-4, 5, (offsets[-1], *inner)).astype(dtype)
    return Packed(values, offsets)


def split(packed: Packed) -> list[Array]:
    return np.split(packed.values, packed.offsets[1:-1]) if len(packed.offsets) > 1 else []


def join(parts: list[Array], *inner: int) -> Array:
    return np.concatenate([np.zeros((0, *inner)), *parts])


STATEMENTS = """def f(ragged {t}(B, L*, D) X, ragged {t}(B, L*) u, {t}(D, E) W, {t}(B, D) c)
    -> (ragged {t}(B, L*, E) Y, sums, mean, ragged shifted, change, place, first, padded, centred, total, length, ones, low) {{
  Y(b, l, e) +=! X(b, l, d) * W(d, e)
  sums(b, d) +=! X(b, l, d) * u(b, l)
  mean(b) +=! u(b, l) * {t}(L(b))
  shifted(b, l) = pad(u(b, l - 1), 9) + (l > 0 ? u(b, l - 1) : 5)
  change(b) +=! u(b, l) - u(b, l - 1) where l in 1:L(b)
  place(b, l) = u(b, l) * {t}(l)
  first(b) = pad(u(b, 0), 7) - pad(u(b, L(b) - 1), 8)
  padded(b, j) = pad(u(b, j), -1) where j in 0:4
  centred(b, l, d) = X(b, l, d) - c(b, d)
  total +=! u(b, l)
  length(b) = L(b)
  ones(b, l) = {t}(1) where l in 0:L(b)
  low(b, l) +=! u(b, m) where l in 0:L(b), m <= l
}}"""


def expect(x: Packed, u: Packed, w: Array, c: Array) -> list[Any]:
    xs, us, d = split(x), split(u), x.values.shape[1]
    before = [np.concatenate([[9, *v[:-1]]]) + np.concatenate([[5, *v[:-1]]]) if len(v) else v for v in us]
    return [
        x.values @ w,
        [(v[:, None] * m).sum(0) for m, v in zip(xs, us, strict=True)] or np.zeros((0, d)),
        [(v * len(v)).sum() for v in us],
        join(before),
        [v[-1] - v[0] if len(v) else 0 for v in us],
        join([v * np.arange(len(v)) for v in us]),
        [v[0] - v[-1] if len(v) else -1 for v in us],
        np.array([np.pad(v[:4], (0, max(0, 4 - len(v))), constant_values=-1) for v in us]).reshape(-1, 4),
        join([m - row for m, row in zip(xs, c, strict=True)], d),
        u.values.sum(),
        [len(v) for v in us],
        np.ones(len(u.values)),
        join([np.cumsum(v) for v in us]),
    ]


def check(op: Any, dtype: str, ends: str, wanted: list[int]) -> None:
    for lengths in LENGTHS:
        x, u = draw(lengths, 2, dtype=dtype, ends=ends), draw(lengths, dtype=dtype, ends=ends)
        w, c = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(2 * len(lengths), dtype=dtype).reshape(-1, 2)
        expected = [expect(x, u, w, c)[k] for k in wanted]
        for found, right in zip(op(x, u, w, c), expected, strict=True):
            assert not isinstance(found, Packed) or found.offsets is x.offsets
            np.testing.assert_array_equal(found.values if isinstance(found, Packed) else found, right)
    if ends == "i4":
        flat = {"X.values": x.values, "X.offsets": x.offsets, "u.values": u.values, "W": w, "c": c}
        read = interpret(op.program, flat, {"B": len(lengths), "D": 2, "E": 3, "L.total": len(u.values)})
        for r, right in zip(op.program.returns, expected, strict=True):
            np.testing.assert_array_equal(read[r.name], right)


def test_statements_over_sequences_are_loops_over_each() -> None:
    check(operator(STATEMENTS.format(t="float")), "f4", "i4", list(range(13)))


def test_offsets_of_64_bits_and_other_types() -> None:
    text = STATEMENTS.format(t="double").split("\n")
    kept = [text[0], "    -> (sums, ragged shifted) {", text[3], text[5], "}"]
    check(operator("\n".join(kept).replace("{t}", "double")), "f8", "i8", [1, 3])


ATTENTION = """def attention(ragged float(B, L*, D) Q, ragged float(B, M*, D) K, ragged float(B, M*, D) V) -> (ragged Y) {
  S(b, l, m) +=! Q(b, l, d) * K(b, m, d)
  G(b, l) max=! S(b, l, m)
  P(b, l, m) = exp(S(b, l, m) - G(b, l))
  Z(b, l) +=! P(b, l, m)
  Y(b, l, d) +=! P(b, l, m) * V(b, m, d) / Z(b, l)
}"""


def attend(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T
    p = np.exp(s - s.max(1, keepdims=True, initial=-np.inf))
    return (p / p.sum(1, keepdims=True)) @ v


def test_two_positions_of_one_sequence_and_sequences_of_two_lengths() -> None:
    op = operator(ATTENTION)
    for first, second in (((3, 0, 5, 1), (2, 4, 1, 6)), ((0, 2), (0, 2)), ((), ())):
        q, k, v = draw(first, 3), draw(second, 3), draw(second, 3)
        wanted = join([attend(*parts) for parts in zip(*map(split, (q, k, v)), strict=True)], 3)
        np.testing.assert_allclose(op(q, k, v).values, wanted, rtol=1e-5, atol=1e-6)


def test_a_product_for_each_position_reads_no_offsets() -> None:
    program = operator("def f(ragged float(B, L*, D) X, float(D, E) W) -> (Y) { Y(b, l, e) +=! X(b, l, d) * W(d, e) }").program
    (s,) = program.statements
    assert set(s.indices) == {"l", "e", "d"} and not s.where


def test_both_notations_give_one_program_and_python_reads_lengths() -> None:
    @polyc.op
    def f(X: "ragged[f32[B, L*, D]]", w: "f32[D]") -> ("ragged[f32[B, L*, D]]", "f32[B, D]"):
        Y[b, l, d] = X[b, l, d] * w[d]
        with polyc.where(1 <= l < L[b]):
            m[b, d] += X[b, l, d] - X[b, l - 1, d]
        return Y, m

    text = """def f(ragged float(B, L*, D) X, float(D) w) -> (ragged float(B, L*, D) Y, float(B, D) m) {
      Y(b, l, d) = X(b, l, d) * w(d)  m(b, d) +=! X(b, l, d) - X(b, l - 1, d) where l in 1:L(b) }"""
    assert format_program(f.program) == format_program(polyc.compile(text).program)
    assert repr(f) == "<polyc operator f(X: ragged f32[B, L*, D], w: f32[D]) -> (Y, m)>"


def test_a_function_with_open_types_takes_sequences() -> None:
    @polyc.op
    def f(X: "ragged[f64[B, L*]]", c, *, scale=2):
        Y[b, l] = X[b, l] * c[b] * scale / L[b]
        return Y

    x = draw((3, 0, 2), dtype="f8")
    for _ in range(2):
        wanted = x.values * np.repeat([1.0, 2, 3], [3, 0, 2]) * 3 / np.repeat([3, 1, 2], [3, 0, 2])
        np.testing.assert_allclose(f(x, np.array([1.0, 2, 3]), scale=3).values, wanted)


SCALE = "def scale(ragged float(B, L*, D) X, ragged float(B, L*) u) -> (ragged Y) { Y(b, l, d) = X(b, l, d) * u(b, l) }"


def test_bound_sequences_are_kept_with_their_offsets() -> None:
    op, x, u = operator(SCALE), draw((3, 0, 2), 2), draw((3, 0, 2))
    wanted = x.values * u.values[:, None]
    for bound in (op.bind(X=x), pickle.loads(pickle.dumps(op.bind(X=x)))):
        for _ in range(2):
            found = bound(u)
            np.testing.assert_array_equal(found.values, wanted)
            np.testing.assert_array_equal(found.offsets, x.offsets)
    np.testing.assert_array_equal(op.bind(u=u)(x).values, wanted)
    for call in (lambda: op.bind(X=x)(draw((2, 1, 2))), lambda: op.bind(u=u)(draw((2, 1, 2), 2))):
        with pytest.raises(PolycError, match="the sequences of X and u have other lengths"):
            call()


def test_padded_reads_beside_a_dense_operand_run_over_that() -> None:
    op = operator("def f(ragged float(B, L*) u, float(B, K) X) -> (z) { z(b, k) = X(b, k) + pad(u(b, k - 1), 7) }")
    u, x = draw((3, 0, 2)), np.arange(15, dtype=np.float32).reshape(3, 5)
    want = [[v[k - 1] if 0 < k <= len(v) else 7 for k in range(5)] for v in split(u)]
    np.testing.assert_array_equal(op(u, x), x + want)


def test_ranges_inside_of_a_sequence_where_only_shifted_elements_are_read() -> None:
    op = operator("def f(ragged float(B, L*) u) -> (S) { S(b) +=! u(b, l + 1) * float(l) where l in 0:L(b)-1 }")
    u = draw((4, 0, 1, 2, 7))
    wanted = [float((part[1:] * np.arange(len(part) - 1)).sum()) if len(part) else 0.0 for part in split(u)]
    np.testing.assert_allclose(op(u), wanted, rtol=1e-6)


def test_a_range_from_before_a_sequence_began_with_it() -> None:
    with pytest.raises(PolycError, match="the range of index l"):
        operator("def f(ragged float(B, L*) u) -> (S) { S(b) +=! l + 2 where l in -1:L(b) }")(draw((3, 1)))


def test_offsets_that_are_a_number_are_told_with_an_error() -> None:
    op = operator("def f(ragged float(B, L*) u, ragged float(B, L*) v) -> (s) { s(b) +=! u(b, l) * v(b, l) }")
    given = draw((3, 4))
    with pytest.raises(PolycError, match="have other lengths"):
        op((given.values, np.int32(7)), given)


def test_results_are_written_where_the_call_says() -> None:
    op, x, u = operator(SCALE), draw((3, 0, 2), 2), draw((3, 0, 2))
    wanted = x.values * u.values[:, None]
    for out in (np.empty((5, 2), np.float32), Packed(np.empty((5, 2), np.float32), x.offsets.copy())):
        assert op(x, u, out=out) is out
        np.testing.assert_array_equal(out.values if isinstance(out, Packed) else out, wanted)
    with pytest.raises(PolycError) as caught:
        op(x, u, out=Packed(np.empty((5, 2), np.float32), np.int32([0, 1, 3, 5])))
    assert caught.value.code == "argument-out-ragged"


def test_packages_are_known_by_their_attributes() -> None:
    op, x = operator("def f(ragged float(B, L*) X) -> (s) { s(b) +=! X(b, l) }"), draw((3, 0, 2))
    content = SimpleNamespace(data=x.values)
    awkward = SimpleNamespace(layout=SimpleNamespace(content=content, offsets=SimpleNamespace(data=x.offsets)))
    jagged = SimpleNamespace(layout="torch.jagged", values=lambda: x.values, offsets=lambda: x.offsets, lengths=lambda: None)
    for value in (tuple(x), awkward, jagged, SimpleNamespace(values=x.values, offsets=x.offsets)):
        np.testing.assert_array_equal(op(value), [v.sum() for v in split(x)])


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ([np.zeros(2, "f4")], "argument-type-ragged", "list of 1"),
        (np.zeros((2, 3), "f4"), "argument-type-ragged", "X is to be ragged"),
        ((np.zeros(3, "f4"), np.int32([0, 2])), "argument-segments", "offsets of X go from 0 to 2"),
        ((np.zeros(3, "f4"), np.int32([1, 3])), "argument-segments", "from 1 to 3"),
        ((np.zeros(3, "f4"), np.int32([0, 2, 1, 3])), "argument-segments", "X.offsets decreases"),
        ((np.zeros(3, "f4"), np.uint32([0, 3])), "argument-type-ragged", "X.offsets is uint32"),
        ((np.zeros(3, "f8"), np.int32([0, 3])), "argument-type-dtype", "X"),
        ((np.zeros((3, 1), "f4"), np.int32([0, 3])), "argument-rank", "X"),
    ],
)
def test_arguments_that_are_no_sequences_are_errors_with_the_users_name(given: Any, code: str, message: str) -> None:
    with pytest.raises(PolycError, match=message) as caught:
        operator("def f(ragged float(B, L*) X) -> (s) { s(b) +=! X(b, l) }")(given)
    assert caught.value.code == code, str(caught.value)


TERMS = "ragged float(B, L*, D) X, ragged float(B, L*) u, ragged float(B, M*) v, int32(B) k, csr float(B, B) A"


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("Y(b) +=! u(b, l) * v(b, l)", "l"),
        ("Y(b) +=! u(b, l) * u(0, l)", "l"),
        ("Y(b) +=! u(b, b)", "b"),
        ("Y(l) +=! u(b, l)", "Y"),
        ("Y(l, b) = u(b, l)", "Y"),
        ("Y(b, l + 1) = u(b, l)", "Y"),
        ("Y(b, l) = u(b, l - 1) + u(b, l)", "u(b, l - 1)"),
        ("Y(b) +=! u(b, l + 1) where l in 0:L(b)", "u(b, l + 1)"),
        ("Y(b) = u(b, 0)", "u(b, 0)"),
        ("Y(b) +=! u(k(b), l)", "l"),
        ("Y(b, l) = u(b, l) where l in 1:L(b)", "Y"),
        ("Y(b, l) = u(b, l) where b in 1:3", "Y"),
        ("Y(b, l) += u(b, l)", "Y"),
        ("Y(b) argmax=! u(b, l)", "u(b, l)"),
        ("Y(b, l) = l == 0 ? u(b, l) : Y(b, l - 1)", "Y(b, l - 1)"),
        ("Y(b, l, m) = u(b, l) * u(b, m)", "Y"),
        ("Y(b) +=! u(b, l) * A(b, j)", "A(b, j)"),
        ("Y(b, l) = pad(u(b - 1, l), 0) + u(b, l)", "u(b - 1, l)"),
    ],
)
def test_what_cannot_be_read_along_sequences_is_refused_at_its_place(statement: str, place: str) -> None:
    text = f"def f({TERMS}) -> (Y) {{ {statement} }}"
    with pytest.raises(PolycError) as caught:
        polyc.compile(text)
    (found,) = caught.value.diagnostics
    assert found.code == "semantic-ragged" and found.span is not None, str(caught.value)
    assert found.help and place in text[found.span.start : found.span.end], str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("ragged float(L*, D) X", "first dimension of X varies"),
        ("ragged float(B, D) X", "no dimension"),
        ("ragged float(B, L*, M*) X", "2 dimensions"),
        ("float(B, L*) X", "nothing here is ragged"),
        ("ragged float(B, L*) X, float(L) w", "names the lengths"),
    ],
)
def test_declarations_of_sequences_are_checked(parameters: str, message: str) -> None:
    with pytest.raises(PolycError, match=message):
        polyc.compile(f"def f({parameters}) -> (y) {{ y = 1 }}")


def test_the_command_line_draws_sequences(tmp_path: Any) -> None:
    path = tmp_path / "scale.tc"
    path.write_text(SCALE)
    result = CliRunner().invoke(main, ["run", str(path), "--size", "B=3", "--size", "D=2", "--size", "L.total=7"])
    assert result.exit_code == 0, result.output
