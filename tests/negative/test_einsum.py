"""Malformed subscript strings and operands that do not fit them."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.negative.support import refuse

A, B, X = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.ones(6, np.float32)

CALLS = {
    "extents_differ": ("ij,jk->ik", (A, A), "argument-einsum-size", "extent 3 in operand 1, but 4 in operand 0"),
    "diagonal_of_a_rectangle": ("ii->i", (A,), "argument-einsum-size", "in the same operand"),
    "operand_missing": ("ij,jk->ik", (A,), "argument-count", "operand1 missing"),
    "operand_too_many": ("ij->", (A, A), "argument-count", "expected 1 input", "but got 2"),
    "too_many_subscripts": ("ijk->i", (A,), "argument-einsum-rank", "2 dimensions, but 3 subscripts"),
    "too_few_subscripts": ("i->i", (A,), "argument-einsum-rank", "one letter per dimension"),
    "output_from_nowhere": ("ij,jk->iz", (A, B), "semantic-einsum-output", "z stands in no operand"),
    "output_twice": ("ij,jk->iik", (A, B), "semantic-einsum-output", "twice"),
    "two_arrows": ("ij->ji->i", (A,), "semantic-einsum-letter", "one -> before the output"),
    "digit": ("i1->i", (A,), "semantic-einsum-letter", "letters a to z"),
    "semicolon_for_comma": ("ij;jk", (A, B), "semantic-einsum-letter", "';' is no subscript", ", between operands"),
    "broken_arrow": ("ij-jk>ik", (A, B), "semantic-einsum-letter", "'-' is no subscript"),
    "two_dots": ("i..j->i", (A,), "semantic-einsum-dots", "write ... once"),
    "four_dots": ("...i.->i", (A,), "semantic-einsum-dots", "write ... once"),
    "accent": ("é->é", (X,), "semantic-einsum-letter", "'é' is no subscript"),
    "newline": ("ij\n->i", (A,), "semantic-einsum-letter", "no subscript"),
    "null_character": ("i\0j->i", (A,), "semantic-einsum-letter", "no subscript"),
    "text_of_definitions": ("def f(float(N) X) -> (Y) { Y(i) = X(i) }", (A,), "semantic-einsum-letter", "polyc.compile(text)"),
    "hundred_thousand_letters": ("i" * 100_000, (A,), "argument-einsum-rank", "100000 subscripts"),
    "text_as_operand": ("ij,jk", ("a", B), "argument-type-array", "operand0 is a str"),
    "long_doubles": ("ij->i", (A.astype(np.longdouble),), "argument-type-dtype", "astype('float32')"),
    "array_for_subscripts": (A, (B,), "argument-type-subscripts", "einsum('ik,kj->ij', a, b)"),
    "number_for_subscripts": (3, (B,), "argument-type-subscripts", "einsum('ik,kj->ij', a, b)"),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_is_refused(name):
    subscripts, operands, code, *fragments = CALLS[name]
    error = refuse(lambda: polyc.einsum(subscripts, *operands), code, *fragments)
    if code.startswith("semantic") or code.startswith("argument-einsum"):
        assert "<subscripts>:" in str(error) and "^" in str(error)


def test_a_character_that_comes_again_is_told_of_once():
    error = refuse(lambda: polyc.einsum("i1 1 1 1->zi2", A), "semantic-einsum-letter")
    assert [d.message for d in error.diagnostics] == ["'1' is no subscript", "'2' is no subscript"]


def test_out_that_does_not_fit():
    refuse(lambda: polyc.einsum("ij,jk->ik", A, B, out=np.ones((5, 3), np.float32)), "argument-out-shape", "(3, 5)", "(5, 3)")
    fragments = "cannot be cast to the int32 of out", "casting='same_kind'"
    refuse(lambda: polyc.einsum("ij,jk->ik", A, B, out=np.ones((3, 5), np.int32)), "argument-type-einsum", *fragments)


def test_hundreds_of_operands():
    x = np.full(2, 1.0, np.float32)
    assert polyc.einsum(",".join(["i"] * 300), *[x] * 300) == 2.0
