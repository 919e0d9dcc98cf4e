"""What `explain` and the one-line summary say: every decision with the number behind it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.config import Options
from polyc.scheduler.contractions.register_use import register_use
from tests.golden.programs import ATTENTION, CONV, DOT, GELU, LAYERNORM, MATMUL_NT, SOFTMAX
from tests.scheduler.support import lower

SUMMARIES = {
    "softmax": (SOFTMAX, {"N": 512, "D": 1000}, "parallel n(512); vectors of 16 along d; folded M, E, Z"),
    "conv": (
        CONV,
        {"B": 1, "C": 64, "H": 58, "W": 58, "F": 64, "KH": 3, "KW": 3},
        "parallel y.tile(28); tile x.tile 14 x f 32, vectors of 16; folded T.tiles, T.products",
    ),
    "gelu": (GELU, {"M": 512, "N": 3072}, "parallel m(512); vectors of 16 along n; inlined 1"),
    "scan": (
        "def f(float(M, N) x) -> (S) { S(m, 0) = x(m, 0)  S(m, i) = S(m, i - 1) + x(m, i) where i in 1:N }",
        {"M": 64, "N": 4096},
        "parallel m(64); scan in vectors of 16 along i",
    ),
    "no vectors": ("def f(int32(N) k) -> (int32(256) H) { H(k(i)) +=! 1 }", {"N": 999}, "loops without vectors, on one thread"),
    "one point": ("def f(float x, float y) -> (s) { s = x * y }", {}, "no loops"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries(name):
    text, sizes, expected = SUMMARIES[name]
    assert lower(text, sizes).summary() == expected


def test_the_summary_names_what_is_packed_and_summed_in_parts():
    assert lower(MATMUL_NT, {"M": 256, "K": 512, "N": 384}).summary().endswith("packed B")
    assert "sum in parts" in lower(DOT, {"N": 1 << 24}).summary()


def test_symbolic_trips_are_named():
    assert "parallel n(N)" in lower(SOFTMAX, {"N": 4, "D": 4}, is_fixed=False).summary()


def test_another_scheduler_is_named():
    assert lower(GELU, {"M": 64, "N": 64}, options=Options(scheduler="source")).summary().endswith("schedule of source")


def sections(text: str) -> dict[str, str]:
    """Sections by title."""
    parts = f"\n{text}".split("\n== ")[1:]
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
    (choice,) = lowered.choices.values()
    (other,) = {"m", "n"} - {choice.way.vector}
    assert f"{choice.way.vector} in vectors of 16" in own and f"{choice.way.tile[other]} {other} unrolled" in own
    assert f"16 lanes along {choice.way.vector}: 2.0 memory operations each; along " in own and "one by one 56.0" in own
    assert f"{other} {choice.way.tile[other]} x {choice.way.vector} {choice.way.tile[choice.way.vector]}: " in own
    assert f"{register_use(choice).accumulators} accumulators, 32 registers" in own
    assert "each element is used " in own


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


def test_contractions_say_roles_registers_cycles_and_bytes():
    lowered = lower(MATMUL_NT, {"M": 256, "K": 512, "N": 384})
    text = sections(lowered.explain())["contractions"]
    (choice,) = lowered.choices.values()
    assert "sums     k (512)" in text and "m (256)" in text and "n (384)" in text
    assert f"columns  {choice.way.vector} " in text
    assert f"{register_use(choice).registers} of 32 registers" in text
    copied = [o.read.tensor for o, packs in _operands(choice) if packs]
    assert all(f"{name}: " in text.split("copies")[1].split("\n")[0] for name in copied)
    assert f"{choice.total:.3g} in all" in text and "bound    by " in text


def _operands(choice):
    return ((choice.row_operand, choice.way.packs_rows), (choice.vector_operand, choice.way.packs_vector))


def test_every_statement_has_its_compulsory_bytes():
    text = "def f(float(H, W) X) -> (O) { O(i, j) = X(i, j) + X(i + 1, j) }"
    lowered = lower(text, {"H": 9, "W": 10})
    assert "bytes    O 320, X 320: each at least once" in sections(lowered.explain())["statements"]
    diagonal = lower("def d(float(N, N) X) -> (O) { O(i) = X(i, i) }", {"N": 8})
    assert "bytes    O 32, X 32: each" in sections(diagonal.explain())["statements"]


def test_what_is_measured_stands_beside_the_estimate():
    op = polyc.compile(MATMUL_NT)
    a, b = np.ones((40, 30), np.float32), np.ones((20, 30), np.float32)
    found = op.measure(a, b)
    assert found.operations == 2 * 40 * 20 * 30
    assert found.argument_bytes == a.nbytes + b.nbytes + 4 * 40 * 20
    assert found.one_thread > 0 and found.all_threads > 0 and found.cycles == found.one_thread * found.clock
    assert (found.missed_bytes is None) == bool(found.why_not_counted)
    text = str(found)
    assert ("GFLOP/s" in text and "one thread" in text and "bytes of inputs" in text) or "as the processor counts" in text


def test_bound_and_named_inputs_are_measured_too():
    op = polyc.compile(MATMUL_NT).bind(B=np.ones((20, 30), np.float32))
    assert op.measure(A=np.ones((40, 30), np.float32)).operations == 2 * 40 * 20 * 30


def test_results_that_are_accumulated_into_are_measured():
    op = polyc.compile("def f(float(N) x) -> (s) { s(i) += x(i) }")
    assert op.measure(np.ones(8, np.float32), out=np.zeros(8, np.float32)).operations > 0


def test_explain_is_that_of_the_stages():
    twice = polyc.compile("def twice(float(N) a) -> (b) { b(i) = 2 * a(i) }")
    a = np.ones(8, np.float32)
    assert twice.explain(a) == twice.lower(a).explain() and "vectors" in twice.explain(a)
