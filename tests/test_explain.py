"""What `explain` and the one-line summary say: every decision with the number behind it."""

from __future__ import annotations

import pytest

from polyc.config import Options
from tests.golden.programs import ATTENTION, CONV, DOT, GELU, LAYERNORM, MATMUL_NT, SOFTMAX
from tests.scheduler.support import lower

SUMMARIES = {
    "softmax": (SOFTMAX, {"N": 512, "D": 1000}, "parallel n(512); vectors of 16 along d; folded M, E, Z"),
    "conv": (
        CONV,
        {"B": 1, "C": 64, "H": 58, "W": 58, "F": 64, "KH": 3, "KW": 3},
        "parallel y(56); tile f 6 x x 64, vectors of 16; folded T",
    ),
    "gelu": (GELU, {"M": 512, "N": 3072}, "parallel m(512); vectors of 16 along n; inlined 1"),
    "one point": ("def f(float x, float y) -> (s) { s = x * y }", {}, "no loops"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries(name):
    text, sizes, expected = SUMMARIES[name]
    assert lower(text, sizes).summary() == expected


def test_the_summary_names_what_is_packed_and_summed_in_parts():
    assert "packed B" in lower(MATMUL_NT, {"M": 256, "K": 512, "N": 384}).summary()
    assert "sum in parts" in lower(DOT, {"N": 1 << 24}).summary()


def test_symbolic_trips_are_named():
    assert "parallel n(N)" in lower(SOFTMAX, {"N": 4, "D": 4}, is_fixed=False).summary()


def test_another_scheduler_is_named():
    assert lower(GELU, {"M": 64, "N": 64}, options=Options(scheduler="source")).summary().endswith("schedule of source")


def sections(text: str) -> dict[str, str]:
    """Sections by title."""
    parts = text.split("== ")[1:]
    return {title: body for title, _, body in (part.partition(" ==\n") for part in parts)}


@pytest.mark.parametrize("text", [SOFTMAX, LAYERNORM, ATTENTION, CONV, DOT, MATMUL_NT])
def test_every_section_is_there(text):
    lowered = lower(text, {}, is_fixed=False)
    found = sections(lowered.explain())
    assert list(found)[:2] == ["summary", "program"]
    assert {"domains and accesses", "schedule", "statements", "decisions"} <= set(found)
    assert found["summary"].strip() == lowered.summary()
    for s in lowered.scop.statements:
        assert f"\n{s.name}(" in "\n" + found["statements"]


def test_statements_say_ranges_loops_vector_and_tile():
    lowered = lower(MATMUL_NT, {"M": 256, "K": 512, "N": 384})
    text = sections(lowered.explain())["statements"]
    own = text.split("\nS0(")[1]
    assert "ranges   m in 0:256, n in 0:384, k in 0:512" in own
    assert "n in vectors of 16" in own and "parallel m by 6" in own and "m unrolled" in own
    assert "16 lanes along n: 2.0 memory operations each; along m 17.0, k 17.5; one by one 56.0" in own
    assert "m 6 x n 64: 24 accumulators, 32 registers" in own
    assert "each element by 256 rows" in own


def test_ranges_are_those_of_the_user():
    text = "def f(float(N) X) -> (O) { O(i) = X(i-1) + X(i+1) where i in 1:N-1 }"
    assert "ranges   i in 1:N - 1" in lower(text, {"N": 9}, is_fixed=False).explain()


def test_storage_says_what_folding_saves():
    text = sections(lower(SOFTMAX, {"N": 512, "D": 1000}).explain())["storage"]
    assert "E: f32[1, 1000] of each thread, 4000 bytes instead of 2048000 bytes" in text
    symbolic = sections(lower(SOFTMAX, {"N": 4, "D": 4}, is_fixed=False).explain())
    assert "E: f32[1, D] of each thread, 4 bytes x D instead of 4 bytes x N x D" in symbolic["storage"]
    assert "sizes that are not given count as 512" in symbolic["statements"]


def test_what_was_not_done_is_said_with_its_reason():
    text = lower(SOFTMAX, {"N": 4, "D": 4}).explain()
    assert "E is stored: 13 operations would be computed 2 times" in text and "one thread: " in text
