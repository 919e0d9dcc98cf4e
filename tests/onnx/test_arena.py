"""Planning of one block of memory: nothing alive overlaps, and it is as small as it can be where that is known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.onnx.arena import ALIGNMENT, Buffer, align, plan_arena

buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)).map(lambda t: Buffer(t[0], t[1], t[1] + t[2])),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(buffers)
def test_what_is_alive_together_does_not_overlap(given_buffers):
    arena = plan_arena(given_buffers)
    for i, a in enumerate(given_buffers):
        assert arena.offsets[i] % ALIGNMENT == 0 and arena.offsets[i] + a.size <= arena.size
        for j, b in enumerate(given_buffers[:i]):
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                x, y = arena.offsets[i], arena.offsets[j]
                assert x + a.size <= y or y + b.size <= x
    assert arena.bound <= arena.size <= arena.total == sum(align(b.size) for b in given_buffers)


def test_a_chain_needs_two_buffers():
    chain = [Buffer(640, i, i + 1) for i in range(20)]
    arena = plan_arena(chain)
    assert arena.size == arena.bound == 1280 and arena.total == 20 * 640


def test_a_block_is_shared_by_smaller_ones():
    # The large one dies before the two small ones that fit into its place are born.
    arena = plan_arena([Buffer(1280, 0, 1), Buffer(640, 2, 4), Buffer(640, 3, 4), Buffer(64, 0, 4)])
    assert arena.size == arena.bound == 1344


def test_no_buffers_need_no_memory():
    assert plan_arena([]).size == 0
    assert plan_arena([Buffer(0, 0, 3)]).size == 0


def test_thousands_are_planned_quickly():
    many = [Buffer(64 * (1 + i * 7 % 50), i, i + 1 + i % 5) for i in range(3000)]
    assert plan_arena(many).size < 2 * plan_arena(many).bound
