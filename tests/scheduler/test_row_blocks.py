"""Tiles of rows that stream the same operands from beyond the second-level cache pass over them together, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from polyc.driver import Lowered
from polyc.ir.expr import Const
from polyc.machine import X86_64_V3, Machine, RowBlocks
from tests.scheduler.support import check_nest, lower

ATTENTION = """
def attention(float(H,S,D) Q, float(H,T,D) K, float(H,T,E) V) -> (O) {
  P(h,s,t) +=! Q(h,s,d) * K(h,t,d)
  M(h,s) max=! P(h,s,t)
  W(h,s,t) = exp((P(h,s,t) - M(h,s)) * 0.125)
  L(h,s) +=! W(h,s,t)
  A(h,s,e) +=! W(h,s,t) * V(h,t,e)
  O(h,s,e) = A(h,s,e) / L(h,s)
}"""
CAUSAL = """
def attention(float(H,S,D) Q, float(H,T,D) K, float(H,T,E) V) -> (O) {
  P(h,s,t) +=! Q(h,s,d) * K(h,t,d)
  M(h,s) max=! P(h,s,t) where t <= 2*s
  L(h,s) +=! exp(P(h,s,t) - M(h,s)) where t <= 2*s
  A(h,s,e) +=! exp(P(h,s,t) - M(h,s)) * V(h,t,e) where t <= 2*s
  O(h,s,e) = A(h,s,e) / L(h,s)
}"""
BATCHED = """
def attention(float(B,H,S,D) Q, float(B,H,T,D) K, float(B,H,T,E) V) -> (O) {
  P(b,h,s,t) +=! Q(b,h,s,d) * K(b,h,t,d) where t <= s
  M(b,h,s) max=! P(b,h,s,t) where t <= s
  W(b,h,s,t) = exp((P(b,h,s,t) - M(b,h,s)) * 0.125) where t <= s
  L(b,h,s) +=! W(b,h,s,t) where t <= s
  A(b,h,s,e) +=! W(b,h,s,t) * V(b,h,t,e) where t <= s
  O(b,h,s,e) = A(b,h,s,e) / L(b,h,s)
}"""
LONG = {"H": 12, "S": 2048, "T": 2048, "D": 64, "E": 64}
SMALL = replace(X86_64_V3, l1=1 << 11, l2=12 << 10)
"""Caches that keys and values of 130 positions leave."""


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(RowBlocks, "computed", 32)
    yield


def rows_waiting(lowered: Lowered, buffer: str = "A.block") -> int:
    """Rows whose sums over blocks wait in a buffer; 0 where there are no blocks."""
    shape = next((b.shape for b in lowered.nest.buffers if b.name == buffer), ())
    sizes = [e.value for e in shape if isinstance(e, Const)]
    return int(sizes[2]) if shape else 0


def test_tiles_of_attention_share_blocks_of_keys():
    lowered = lower(ATTENTION, LONG, target=X86_64_V3)
    scores = next(b.shape for b in lowered.nest.buffers if b.name == "P.block")
    assert [e.value for e in scores] == [1, 1, 6, 256]  # type: ignore[union-attr]
    assert rows_waiting(lowered) == 96


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        ({"T": 1024}, X86_64_V3),  # keys and values of a head stay in the second-level cache
        ({"S": 8}, X86_64_V3),  # two tiles read them
        ({}, replace(X86_64_V3, l2=4 << 20)),
    ],
)
def test_tiles_that_find_their_operands_again_stay(sizes: dict[str, int], target: Machine):
    assert rows_waiting(lower(ATTENTION, LONG | sizes, target=target)) <= 8


def test_scores_of_one_head_go_in_blocks_as_those_of_several():
    assert rows_waiting(lower(ATTENTION, LONG | {"H": 1}, target=X86_64_V3)) > 0


def test_a_single_sum_over_shared_operands_reads_them_once_as_it_is():
    text = """
def f(float(H,S,D) Q, float(H,T,D) K) -> (L) {
  P(h,s,t) +=! Q(h,s,d) * K(h,t,d)
  M(h,s) max=! P(h,s,t)
  L(h,s) +=! exp(P(h,s,t) - M(h,s))
}"""
    sizes = {"H": 3, "S": 256, "T": 4096, "D": 64}
    assert not any(r.pass_name == "online-softmax" for r in lower(text, sizes, target=X86_64_V3).remarks)


def test_few_heads_leave_blocks_for_threads():
    assert rows_waiting(lower(ATTENTION, LONG | {"H": 2, "S": 96}, target=X86_64_V3)) == 24


@pytest.mark.parametrize("is_causal", [False, True])
def test_blocks_and_rows_that_tiles_do_not_divide(is_causal: bool, short_blocks: None):
    sizes = {"H": 3, "S": 50, "T": 130, "D": 16, "E": 4}
    lowered = lower(CAUSAL if is_causal else ATTENTION, sizes, target=SMALL)
    assert rows_waiting(lowered) > 6
    check_nest(lowered, sizes)
    if not is_causal:
        check_nest(lower(ATTENTION, sizes, is_fixed=False, target=SMALL), sizes)


def test_causal_attention_of_one_batch_computes_whole_tiles_in_registers():
    """Tiles of scores begin where those of the sums over values do, in blocks of rows whose first tile depends on the block."""
    lowered = lower(BATCHED, LONG | {"B": 1}, target=X86_64_V3)
    assert rows_waiting(lowered) == 96
    loops = lowered.as_text("loops").splitlines()
    sums = [line for line in loops if "// S0_block" in line or "// S4_block" in line]
    assert sums and not any("%" in line for line in sums)
    assert not any(line.strip().startswith("if") and "c7" in line for line in loops)
