"""Ways to compute contractions are found once, and again where anything differs that they depend on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.poly.extraction import extract_scop
from polyc.scheduler.contractions import choice
from polyc.scheduler.contractions.contraction import Contraction, find_contraction
from tests.scheduler.support import infer, read

PRODUCT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
SIZES = {"M": 96, "N": 100, "K": 64}


def find(text: str = PRODUCT, target: Machine = X86_64_V3, **sizes: int) -> Contraction:
    scop = extract_scop(*infer(read(text), **sizes))
    (s,) = scop.statements
    found = find_contraction(s, scop, target)
    assert found is not None
    return found


def test_equal_contractions_of_several_scops_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_chosen", {})
    first = choice.choose(find(**SIZES), X86_64_V3)
    monkeypatch.delattr(choice.costs, "weigh")
    assert choice.choose(find(**SIZES), X86_64_V3) == first is not None


def test_remembered_choices_are_those_of_the_same_question() -> None:
    c = find(**SIZES)
    reads = [v.operand.read for v in c.views]
    others = [find(**(SIZES | {"N": 9})), find(M=512), find(target=X86_64_V4, **SIZES)]
    others += [
        find(PRODUCT.replace("B(n,k) }", "B(k,n) }")),
        replace(c, separate_left=("m",)),
        replace(c, tested=frozenset("n")),
    ]
    questions = [(other, X86_64_V3, (), (), {}) for other in (c, *others)]
    questions += [(c, target, (), (), {}) for target in (X86_64_V4, replace(X86_64_V3, l2=1 << 12))]
    questions += [
        (c, X86_64_V3, constants, in_place, {}) for constants in ("A", "B") for in_place in ((), reads[:1], reads[1:])
    ]
    questions += [(c, X86_64_V3, (), (), within) for within in ({"m": 4}, {"n": 20})]
    assert len({repr(choice._find_best(*question)) for question in questions}) > 10
    for question in questions:
        assert choice.choose(*question) == choice._find_best(*question)
