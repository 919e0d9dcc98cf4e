"""`polyc.einsum` with all arguments of `numpy.einsum`: the same results, and errors of the same kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyc
from polyc.api.functions import forget_einsums
from polyc.diagnostics import PolycError


@pytest.fixture(params=["numpy", "compile"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """By NumPy until compiling pays, and compiled at once."""
    monkeypatch.setenv("POLYC_EINSUM", "compile" if request.param == "compile" else "")
    forget_einsums()
    yield request.param
    forget_einsums()


def _draw(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 5, shape).astype(dtype)


def _compare(*args: Any, **options: Any) -> None:
    expected = np.einsum(*args, **options)
    got = polyc.einsum(*args, **options)
    assert np.shape(got) == np.shape(expected) and got.dtype == expected.dtype
    assert type(got) is type(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


A, B = _draw(3, 4), _draw(4, 5)

INTERLEAVED = [
    (A, [0, 1], B, [1, 2], [0, 2]),
    (A, [0, 1], B, [1, 2]),
    (A, (7, 3), B, (3, 1)),  # the implicit output is in the order of numbers
    (A, [51, 27], B, [27, 26]),
    (A, [0, 1], [1, 0]),
    (A, [0, 1], []),
    (A, [0, 1]),
    (A, [..., 1], B, [1, 2], [..., 2]),
    (A, [0, ...], [..., 0]),
    (_draw(4, 4), [0, 0]),
    (_draw(4, 4), [0, 0], [0]),
    (_draw(2, 1, 4), [..., 0], _draw(3, 4), [..., 0], [...]),
    (A, np.array([0, 1]), B, np.array([1, 2])),
    (A, [0, 1], B, [1, 2], _draw(5, 2), [2, 3], [0, 3]),
    (A, [np.int8(0), np.uint64(1)]),
    ([1, 2, 3], [0]),
    (A, range(2), B, range(1, 3)),
]


@pytest.mark.parametrize("number", range(len(INTERLEAVED)))
def test_interleaved_form(way: str, number: int) -> None:
    _compare(*INTERLEAVED[number])


OPTIONS: list[dict[str, Any]] = [
    {"dtype": "f8"},
    {"dtype": np.float64, "optimize": np.lib.NumpyVersion(np.__version__) >= "2.0.0"},  # which forgot one of both before
    {"dtype": "i4", "casting": "unsafe"},
    {"dtype": "f2", "casting": "same_kind"},
    {"casting": "equiv"},
    {"optimize": "greedy"},
    {"optimize": "optimal"},
    {"optimize": ("greedy", 1000)},
    {"optimize": ["einsum_path", (0, 1)]},
    {"optimize": None},
    {"order": "C"},
    {"order": "A"},
    {"order": None},
    {"order": "f"},
    {"order": "c"},
]


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options(way: str, number: int) -> None:
    _compare("ij,jk->ik", A, B, **OPTIONS[number])


def test_subscripts_are_bytes(way: str) -> None:
    _compare(b"ij,jk->ki", A, B)


def test_a_type_wider_than_the_operands_is_computed_in(way: str) -> None:
    huge = np.full(3, 1e30, "f4")
    assert polyc.einsum("i,i->i", huge, huge, dtype="f8")[0] > 9e59
    out = np.zeros(3)
    assert polyc.einsum("i,i->i", huge, huge, out=out) is out  # the type of out takes part, as in NumPy
    assert out[0] > 9e59
    assert polyc.einsum("i->", np.array([True, True]), dtype=int) == 2


@pytest.mark.pairs
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("computed", ["f2", "f4", "f8", "i8", "?"])
def test_complex_operands_are_computed_with_as_real_numbers(way: str, dtype: str, computed: str) -> None:
    a = np.array([[1 + 2j, 3j, 0], [-4, 5 - 1j, 2]], dtype)
    _compare("ij,kj->ik", a, a, dtype=computed, casting="unsafe")
    _compare("ij,j->i", a, _draw(3, dtype="i2"), dtype=computed, casting="unsafe")


def test_integers_beside_a_float_do_not_widen_it_by_what_they_would_need_among_themselves(way: str) -> None:
    for types in (("u2", "i1", "f4"), ("i1", "u2", "f4"), ("i1", "f2", "u1"), ("u4", "i4", "c8"), ("u8", "?", "i8")):
        _compare("i,i,i->i", *(_draw(3, dtype=t) for t in types))
    out = np.zeros(3, "f4")
    assert polyc.einsum("i,i->i", _draw(3, dtype="u2"), _draw(3, dtype="i1"), out=out) is out
    np.testing.assert_array_equal(out, _draw(3) ** 2)


def test_arrays_in_the_byte_order_of_other_machines(way: str) -> None:
    for dtype in (">f8", ">i2", ">c8"):
        _compare("ij,jk->ik", A.astype(dtype), B)
        _compare("ij->", A.astype(dtype))
        _compare(A.astype(dtype), [0, 1], B.astype(dtype), [1, 2])
        np.testing.assert_array_equal(polyc.rearrange(A.astype(dtype), "a b -> b a"), A.T)
        np.testing.assert_array_equal(polyc.reduce([A.astype(dtype)] * 2, "n a b -> a b", "sum"), 2 * A)


def test_out_of_another_type(way: str) -> None:
    for dtype, casting in (("f8", "safe"), ("f4", "same_kind"), ("i8", "unsafe")):
        out, expected = np.zeros((3, 5), dtype), np.zeros((3, 5), dtype)
        a = A.astype("f8")
        np.einsum("ij,jk", a, B, out=expected, casting=casting)
        assert polyc.einsum("ij,jk", a, B, out=out, casting=casting) is out
        np.testing.assert_allclose(out, expected)


def test_orders(way: str) -> None:
    for order in "CFAK":
        for a, b in ((A, B), (np.asfortranarray(A), np.asfortranarray(B))):
            expected, got = np.einsum("ij,jk", a, b, order=order), polyc.einsum("ij,jk", a, b, order=order)
            np.testing.assert_allclose(got, expected)
            if order != "K":
                assert got.flags.f_contiguous == expected.flags.f_contiguous
    three = polyc.einsum("...i,i->...i", _draw(2, 3, 4), _draw(4), order="F")
    assert three.flags.f_contiguous and not three.flags.c_contiguous
    np.testing.assert_allclose(three, _draw(2, 3, 4) * _draw(4))


def test_a_path_is_followed(way: str) -> None:
    arrays = _draw(2, 3), _draw(3, 4), _draw(4, 5), _draw(5, 2)
    for path in (
        ["einsum_path", (0, 1), (0, 2), (0, 1)],
        ["einsum_path", (2, 3), (1, 2), (0, 1)],
        ["einsum_path", (0, 1, 2, 3)],
    ):
        _compare("ij,jk,kl,lm->im", *arrays, optimize=path)
    with pytest.raises(PolycError, match="names no operands that are left"):
        polyc.einsum("ij,jk->ik", A, B, optimize=["einsum_path", (0, 5)])


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((A, [0, 60]), {}, ValueError, "the list of operand 0 holds 60"),
    ((A, [-1, 0]), {}, ValueError, "holds -1"),
    ((A, [0, "a"]), {}, TypeError, "holds 'a'"),
    ((A, [0, 1.0]), {}, TypeError, "holds 1.0"),
    ((A, [True, 0]), {}, TypeError, "holds True"),
    ((A, [0, 1], None), {}, TypeError, "the list of the output is a NoneType"),
    ((A, B), {}, TypeError, "the list of operand 0 is a ndarray"),
    ((A,), {}, ValueError, "one array and no subscripts"),
    ((), {}, ValueError, "nothing to compute"),
    ((A, [0, 1], B, [0, 2]), {}, ValueError, r"AB,AC \(A is 0, B is 1, C is 2\)"),
    ((A, [0, 1], [2]), {}, ValueError, "the output index C stands in no operand"),
    (("ij,jk", A, B), {"dtype": "i4"}, TypeError, "operand 0 is float32, and cannot be cast to int32 by the rule 'safe'"),
    (("ij,jk", A, B.astype("f8")), {"casting": "no"}, TypeError, "operand 0 is float32, and cannot be cast to float64"),
    (("ij,jk", A, B), {"dtype": "nonsense"}, TypeError, "dtype cannot be 'nonsense'"),
    (("ij,jk", A, B), {"casting": "nonsense"}, ValueError, "casting cannot be 'nonsense'"),
    (("ij,jk", A, B), {"order": "X"}, ValueError, "order cannot be 'X'"),
    (("ij,jk", A, B), {"optimize": [(0, 1)]}, TypeError, "optimize cannot be"),
    (("ij,jk", A, B), {"optimize": 3}, TypeError, "optimize cannot be 3"),
    (
        ("ij,jk", A, B),
        {"out": np.zeros((3, 5), "i4")},
        TypeError,
        "the result is float64, and cannot be cast to the int32 of out",
    ),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_errors_are_of_numpys_kinds(number: int) -> None:
    args, options, kind, words = WRONG[number]
    with pytest.raises(PolycError, match=words) as caught:
        polyc.einsum(*args, **options)
    if args or options:
        with pytest.raises(Exception) as numpys:
            np.einsum(*args, **options)
        assert isinstance(numpys.value, kind) or "no subscripts" in words
    assert isinstance(caught.value, kind) or "subscripts" in words or "nothing" in words
    assert caught.value.diagnostics[0].help


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        polyc.einsum("ij->ji", A, optimise=True)  # type: ignore[call-arg]


@st.composite
def calls(draw: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of `numpy.einsum` that it accepts, mostly."""
    labels = draw(st.permutations(range(52)))[:4]
    extents = dict(zip(labels, draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)), strict=True))
    arguments: list[Any] = []
    used: set[int] = set()
    has_dots = False
    n_dots = draw(st.integers(0, 2))
    dtypes = draw(st.sampled_from([("f4", "f4"), ("f4", "f8"), ("i2", "f4"), ("i4", "i8"), ("?", "u1"), ("?", "?")]))
    for n in range(draw(st.integers(1, 3))):
        own = draw(st.lists(st.sampled_from(labels), min_size=0, max_size=3))
        shape = [extents[x] for x in own]
        sublist: list[Any] = list(own)
        if draw(st.booleans()):
            place, some = draw(st.integers(0, len(own))), draw(st.integers(0, n_dots))
            sublist.insert(place, ...)
            shape[place:place] = [draw(st.sampled_from([1, 2])) for _ in range(some)]
            has_dots = True
        used |= set(own)
        arguments += [np.asarray(np.random.default_rng(n).integers(0, 3, shape)).astype(dtypes[n % 2]), sublist]
    if draw(st.booleans()):
        output: list[Any] = draw(st.permutations(sorted(used)))
        output = output[: draw(st.integers(0, len(output)))]
        if has_dots:
            output.insert(draw(st.integers(0, len(output))), ...)
        arguments.append(output)
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["dtype"] = draw(st.sampled_from(["f8", "f4", "i8", "u1"]))
    if draw(st.booleans()):
        options["casting"] = draw(st.sampled_from(["no", "equiv", "safe", "same_kind", "unsafe"]))
    if draw(st.booleans()):
        options["order"] = draw(st.sampled_from("CFAK"))
    if draw(st.booleans()):
        options["optimize"] = draw(st.sampled_from([True, False, "greedy", "optimal"]))
    return tuple(arguments), options


def _check_random(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:  # without `optimize`, with which NumPy 2.4 forgets `casting` and `dtype` on the way
        expected = np.einsum(*arguments, **{k: v for k, v in options.items() if k != "optimize"})
    except (TypeError, ValueError) as error:
        with pytest.raises(PolycError) as caught:
            polyc.einsum(*arguments, **options)
        assert isinstance(caught.value, TypeError if isinstance(error, TypeError) else ValueError)
        return
    if len(arguments) <= 2 + len(arguments) % 2 and np.may_share_memory(expected, arguments[0]):
        options.pop("dtype", None)  # NumPy has made a view, whatever it was asked for
    elif len(arguments) <= 3 and np.ndim(expected) == 0 and "dtype" in options and expected.dtype != options["dtype"]:
        options.pop("dtype")  # … or the scalar of one
    got = polyc.einsum(*arguments, **options)
    assert np.shape(got) == np.shape(expected) and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@settings(max_examples=80, deadline=None)
@given(calls())
def test_random_calls_agree_with_numpy(call: tuple[Any, Any]) -> None:
    _check_random(*call)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls())
def test_random_calls_agree_with_numpy_compiled(call: tuple[Any, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYC_EINSUM", "compile")
        forget_einsums()
        _check_random(*call)
    forget_einsums()


def test_results_may_be_written_over_operands(way: str) -> None:
    a = np.arange(9.0).reshape(3, 3)
    whole, part, moved = a.copy(), a.copy(), a.copy()
    assert polyc.einsum("ij,jk->ik", whole, whole, out=whole) is whole
    np.testing.assert_array_equal(whole, a @ a)
    polyc.einsum("ij,j->i", part, part[0], out=part[1])
    np.testing.assert_array_equal(part[1], a @ a[0])
    polyc.einsum("ij->ij", moved[:2], out=moved[1:])
    np.testing.assert_array_equal(moved, a[[0, 0, 1]])
