"""Equal input gives equal text at every stage: within a process, after other programs, and in other processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyc import driver
from polyc.config import Options
from polyc.diagnostics import RangeError
from tests.property.pipeline import LEVELS, lower_case, profile
from tests.property.strategies import Case, cases

TEXT_STAGES = ("program", "scop", "sched", "loops", "ll")


@profile(25)
@given(cases(smallest_size=0), st.sampled_from(LEVELS), st.sampled_from(["ilp", "isl", "source"]), st.booleans())
def test_lowering_twice_gives_the_same_text(case: Case, level: str, scheduler: str, is_fixed: bool) -> None:
    texts = []
    for _ in range(2):
        try:
            lowered = lower_case(case, Options(scheduler=scheduler), level, is_fixed, is_eager=True)
        except RangeError as error:
            texts.append([str(error)])
            continue
        texts.append([lowered.as_text(stage) for stage in TEXT_STAGES] + [lowered.explain()])
    assert texts[0] == texts[1]


PROGRAMS = {
    "attention": """def f(float(B,S,D) Q, float(B,S,D) K, float(B,S,D) V) -> (O) {
        P(b,i,j) +=! Q(b,i,d) * K(b,j,d)  M(b,i) max=! P(b,i,j)  E(b,i,j) = exp(P(b,i,j) - M(b,i))
        Z(b,i) +=! E(b,i,j)  O(b,i,d) +=! E(b,i,j) / Z(b,i) * V(b,j,d) }""",
    "total": "def f(float(N) X, float(N) Y) -> (S, T, R) { S +=! X(i) * Y(i)  T max=! X(i)  R(i) = X(i) * S + T }",
    "convolution": "def f(float(N,C,H,W) I, float(K,C,3,3) G) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * G(k,c,r,s) }",
}


def digest() -> str:
    """A digest of the texts of `PROGRAMS`, and of the object code of one of them."""
    text = hashlib.sha256()
    for source in PROGRAMS.values():
        (program,) = driver.read_tc(source)
        # Versions of convolutions for any sizes take seconds; those of attention are chosen alike.
        for sizes in (None, dict.fromkeys(program.sizes, 24))[source is PROGRAMS["convolution"] :]:
            lowered = driver.lower(program, sizes=sizes, options=Options(target="x86-64-v2"))
            for stage in TEXT_STAGES:
                text.update(lowered.as_text(stage).encode())
            if sizes and source is PROGRAMS["total"]:  # of equal text LLVM makes equal code: once is enough
                text.update(lowered.object_code())
    return text.hexdigest()


@pytest.mark.optimised
def test_other_processes_and_hash_seeds_give_the_same_text_and_object_code() -> None:
    found = {digest()}
    for seed in ("1", "2"):
        code = "import os; from tests.property.test_determinism import digest; print(digest())"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    assert len(found) == 1
