"""Texts of loop nests read back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from polyc.diagnostics import SyntaxErrorInSource
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Loop
from polyc.ir.loops_reader import parse_loops
from polyc.ir.loops_text import format_loops
from polyc.ir.verify_loops import verify_loops

PIPELINE = Path(__file__).parents[1] / "golden" / "pipeline"

EVERYTHING = """nest f(N, X.stride0, Y.stride0)
  N, M = 1, N * M if X.stride0 == M * 4 and Y.stride0 == M * 8 and there is one thread
  argument X: f32[N, 8] strides (X.stride0, 4) at data[0] may alias Y
  argument Y: f64[N] strides (Y.stride0) at data[1]
  argument `size`: bool[] strides () at data[2]
  shared t.packed: f16[8, 4] strides (8, 2)
  thread u: i32[] strides ()
  register s: f32[4] strides (4)
  check 0: 0 <= (N < 8 ? N : 8) < N + 1 if N > 0;
  parallel(in columns along c1, parts of 4 that lie apart, if N * 8 >= 512) for (c0 = 0; c0 < N; c0 += 4) {
    (of 4, registers s from X[c0, c3] * 2.0) for (c1 = 0; c1 < min(N, 8); c1++) {
      unroll(at most 4) for (c3 = 0; c3 < 4; c3++) {
        s[c3] max= -X[c0 + c3, c1] - 1.0e-07;  // S0
      }
    }
    vector(lanes 8 x 2, at most 20, registers u from -1:i32) for (c1 = 0; c1 < N // 2; c1++) {
      u[] += i32(c1 % 3);
    }
    scan(lanes 4) for (c2 = 1; c2 < 8; c2++) {
      prefetch X[c0 + 1, c2], 4 bytes;
      prefetch X[c0 + 1, c2], 64 bytes to L2;
      if (!`size`[] && (c0 == 3 || N < 2)) {
        stream Y[c0] = f64(pad(X[c0, c2 - 1], 0.0)) - nan:f64;
      } else {
        `size`[] &&= true;
      }
    }
  }
"""


def normal(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def test_every_kind_of_node_reads_back() -> None:
    text = format_loops(parse_loops(EVERYTHING))
    assert normal(text).replace("1e-07", "1.0e-07") == normal(EVERYTHING).replace("(N < 8 ? 0 : 1)", "N < 8 ? 0 : 1")
    assert format_loops(parse_loops(text)) == text


@pytest.mark.parametrize("path", sorted(PIPELINE.glob("*/*.loops")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_nests_of_the_pipeline_read_back(path: Path) -> None:
    nest = parse_loops(path.read_text())
    verify_loops(nest)
    assert format_loops(nest) == path.read_text()


def test_an_initial_value_stands_for_stores_to_what_is_accumulated() -> None:
    nest = parse_loops("""nest f()
      argument X: f32[6, 4] strides (16, 4) at data[0]
      argument y: f32[4] strides (4) at data[1]
      (registers y from 0.5) for (i = 0; i < 6; i++) {
        unroll(at most 4) for (j = 0; j < 4; j++) {
          y[j] += X[i, j];  // S0
        }
      }""")
    (loop,) = nest.body
    assert isinstance(loop, Loop) and nest.offsets == ()
    x, y = np.arange(24, dtype=np.float32).reshape(6, 4), np.full(4, np.nan, np.float32)
    interpret_loops(nest, [x, y], {})
    np.testing.assert_array_equal(y, x.sum(0) + np.float32(0.5))


def test_offsets_are_those_that_the_text_asks_for() -> None:
    text = """nest f()
      argument X: f32[64] strides (4) at data[0]
      argument Y: f32[64] strides (4) at data[1]
      for (i = Y.offset // 4; i < 64; i++) {
        Y[i] = X[i];
      }"""
    assert parse_loops(text).offsets == ("Y",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loop f()", "expected 'nest' but found 'loop'"),
        ("nest f() for (i = 0; j < 4; i++) { }", "expected 'i' but found 'j'"),
        ("nest f() (at least 3) for (i = 0; i < 4; i++) { }", "expected 'registers' but found 'at'"),
        ("nest f() vector(lanes 8 for (i = 0; i < 4; i++) { }", "expected ')' but found the end of the text"),
        ("nest f() argument X: f99[4] strides (4)", "expected an element type"),
        ("nest f() x[0] = 1", "expected ';'"),
        ("nest f() x[0] = $;", "has no meaning here"),
    ],
)
def test_faults_in_texts_are_told(text: str, expected: str) -> None:
    with pytest.raises(SyntaxErrorInSource, match=re.escape(expected)):
        parse_loops(text)
