"""einsum against `numpy.einsum`, through the reference interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.diagnostics import ArgumentError, PolycError, SemanticError
from polyc.frontends.einsum import count_operands, read_einsum, read_einsum_symbolic
from polyc.ir.expr import Const, Size
from polyc.ir.interpret import interpret
from polyc.ir.types import DTYPES, F32, from_numpy
from polyc.ir.verify import verify_program


def make_arrays(shapes, dtypes, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.integers(0, 4, shape)).astype(d) for shape, d in zip(shapes, dtypes, strict=True)]


def evaluate(subscripts, arrays, path=None):
    program = read_einsum(subscripts, [a.shape for a in arrays], [from_numpy(a.dtype) for a in arrays], path)
    verify_program(program)
    return interpret(program, {f"operand{n}": a for n, a in enumerate(arrays)})["result"]


def check(subscripts, arrays, path=None):
    expected = np.asarray(np.einsum(subscripts, *arrays))
    got = evaluate(subscripts, arrays, path)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)  # small integers: every order of summation gives the same


CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bhqd,bhkd->bhqk", (2, 1, 3, 2), (2, 1, 4, 2)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->ji", (2, 2, 3)),
    ("ij->ji", (2, 3)),
    ("bA", (2, 3)),
    ("i->", (3,)),
    ("", ()),
    ("->", ()),
    (",", (), ()),
    ("i,->i", (3,), ()),
    ("i,j", (2,), (3,)),
    ("i,i", (3,), (3,)),
    ("...ij,...jk", (2, 1, 3, 4), (5, 4, 2)),
    ("...,...", (2, 3), (3,)),
    ("i...", (3, 2, 4)),
    ("...i,...i->...", (2, 1, 3), (4, 3)),
    ("...i->i", (3,)),
    ("i->...i", (3,)),
    ("ab,...->...ab", (2, 3), (4,)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("i,i->i", (1,), (4,)),
    ("ij,ij->j", (1, 3), (4, 1)),
    ("i,i", (0,), (1,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("i,i,i->i", (1,), (4,), (1,)),
    ("i,j,k->kji", (2,), (3,), (2,)),
    ("iij,jk,k...->...i", (2, 2, 1), (3, 4), (1, 5)),
    (",i,", (), (3,), ()),
]


@pytest.mark.parametrize("subscripts, shapes", [(c[0], c[1:]) for c in CASES])
def test_agrees_with_numpy(subscripts, shapes):
    check(subscripts, make_arrays(shapes, ["f8"] * len(shapes)))


@pytest.mark.parametrize("left", [t for t in DTYPES if t != "bf16"])  # which NumPy does not have
@pytest.mark.parametrize("right", ["f32", "i8", "u64", "bool"])
def test_result_type_is_numpys(left, right):
    check("ij,jk", make_arrays([(2, 3), (3, 4)], [DTYPES[left].numpy, DTYPES[right].numpy]))


def test_small_integers_wrap_as_in_numpy():
    check("i,i", [np.full(3, 100, np.int8), np.full(3, 2, np.int8)])


@st.composite
def einsums(draw):
    """Random subscripts with broadcasting, diagonals, ellipses and explicit or implicit outputs."""
    extents = {x: draw(st.integers(0, 3)) for x in "ijkA"}
    behind = draw(st.lists(st.integers(1, 3), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        letters = draw(st.lists(st.sampled_from("ijkA"), max_size=3))
        ones = {x for x in set(letters) if draw(st.integers(0, 4)) == 0}
        shape = [1 if x in ones else extents[x] for x in letters]
        if draw(st.booleans()):
            place = draw(st.integers(0, len(letters)))
            count = draw(st.integers(0, len(behind)))
            inserted = [draw(st.sampled_from([n, 1])) for n in behind[len(behind) - count :]]
            letters = [*letters[:place], "...", *letters[place:]]
            shape[place:place] = inserted
        terms.append("".join(letters))
        shapes.append(tuple(shape))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        used = sorted(set(subscripts) - set(",."))
        output = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
        output.insert(draw(st.integers(0, len(output))), "...")
        subscripts += "->" + "".join(output)
    return subscripts, shapes, [draw(st.sampled_from(["f4", "f8", "i4", "u1", "?"])) for _ in shapes]


@settings(max_examples=150, deadline=None)
@given(einsums())
def test_random_einsums_agree_with_numpy(case):
    subscripts, shapes, dtypes = case
    arrays = make_arrays(shapes, dtypes)
    try:
        np.einsum(subscripts, *arrays)
    except ValueError:
        with pytest.raises(PolycError):
            evaluate(subscripts, arrays)
        return
    check(subscripts, arrays)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ij,.->A 1\u00e9", max_size=12), st.lists(st.sampled_from([(), (2,), (2, 2), (2, 1)]), max_size=3))
def test_any_text_is_accepted_or_refused_as_numpy_does(subscripts, shapes):
    arrays = make_arrays(shapes, ["f4"] * len(shapes))
    try:
        expected = np.einsum(subscripts, *arrays)
    except (ValueError, TypeError, UnicodeError):
        with pytest.raises(PolycError) as caught:
            evaluate(subscripts, arrays)
        assert "help:" in str(caught.value)
        return
    np.testing.assert_array_equal(evaluate(subscripts, arrays), expected)


def test_three_operands_are_contracted_pairwise():
    program = read_einsum("ij,jk,kl->il", [(2, 100), (100, 100), (100, 2)], [F32] * 3)
    assert [t.role for t in program.tensors[3:]] == ["temporary", "output"]
    assert all(len(s.indices) <= 3 for s in program.statements)


def test_a_given_path_is_followed():
    arrays = make_arrays([(2, 3), (3, 4), (4, 5)], ["f8"] * 3)
    check("ij,jk,kl->il", arrays, path=[(1, 2), (0, 1)])
    check("ij,jk,kl->il", arrays, path=[(0, 1, 2)])
    for wrong in ([(0, 1)], [(0, 3), (0, 1)], [(0, 0), (0, 1)]):
        with pytest.raises(ArgumentError, match="argument-einsum-path"):
            check("ij,jk,kl->il", arrays, path=wrong)


def test_symbolic_sizes_serve_any_extents():
    program = read_einsum_symbolic("ik,kj->ij", [2, 2], [F32, F32])
    verify_program(program)
    assert program.sizes == ("n_i", "n_k", "n_j")
    assert program.tensor("operand1").shape == (Size("n_k"), Size("n_j"))
    a, b = make_arrays([(3, 5), (5, 2)], ["f4", "f4"])
    np.testing.assert_array_equal(interpret(program, {"operand0": a, "operand1": b})["result"], a @ b)


def test_a_known_extent_settles_an_unknown_one():
    program = read_einsum("i,i,j", [(None,), (4,), (None,)], [F32] * 3)
    assert program.tensor("operand0").shape == (Const(4),)
    assert program.sizes == ("n_j",)


@pytest.mark.parametrize(
    "subscripts, shapes, code, words",
    [
        ("ij,jk", [(2, 3), (4, 5)], "argument-einsum-size", "index j has extent 4 in operand 1, but 3 in operand 0"),
        ("ii", [(2, 3)], "argument-einsum-size", "in the same operand"),
        ("...i,...i", [(2, 3), (4, 3)], "argument-einsum-size", "dimension 0 of the '...'"),
        ("ij", [(3,)], "argument-einsum-rank", "operand 0 has 1 dimension, but 2 subscripts"),
        ("i", [(3, 3)], "argument-einsum-rank", "operand 0 has 2 dimensions, but 1 subscript"),
        ("i,j", [(3,)], "argument-einsum-count", "name 2 operands, but 1"),
        ("i->ii", [(3,)], "semantic-einsum-output", "stands twice"),
        ("i->j", [(3,)], "semantic-einsum-output", "stands in no operand"),
        ("...->", [(3,)], "semantic-einsum-output", "no '...'"),
        ("i1", [(3, 3)], "semantic-einsum-letter", "'1' is no subscript"),
        ("i..", [(3, 3)], "semantic-einsum-dots", "'.'"),
        ("i->j->k", [(3,)], "semantic-einsum-letter", "'-'"),
    ],
)
def test_errors_name_the_operands_and_point_into_the_subscripts(subscripts, shapes, code, words):
    with pytest.raises(ValueError) as caught:
        read_einsum(subscripts, shapes, [F32] * len(shapes))
    assert isinstance(caught.value, PolycError)
    assert caught.value.code == code
    text = str(caught.value)
    assert words in text and "^" in text and "help:" in text and subscripts in text


def test_count_operands():
    assert count_operands("i, j -> ij") == 2
    with pytest.raises(SemanticError):
        count_operands("i;j")
