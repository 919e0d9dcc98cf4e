"""Single passes over loop nests, on texts: each ``.loops`` file is named after a pass and has nests before and after it.

    == what the case shows (target=x86-64-v4 l2=262144)
    nest f() …
    -- after
    nest f() …

``-- unchanged`` stands for what the pass leaves as it is.  The machine is `CACHES` with the vectors of `target`; other words
in brackets replace what it has.  Both nests are run by the interpreter, and must mean the same.  ``--update-golden`` writes
what the passes make; read the difference.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyc.codegen.nests.pipeline import LOOPS, LoopContext
from polyc.ir.expr import evaluate
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import LoopNest
from polyc.ir.loops_reader import parse_loops
from polyc.ir.loops_text import format_loops
from polyc.ir.verify_loops import verify_loops
from polyc.machine import PINNED, Machine
from polyc.records import dataclass, replace
from tests.machines import CACHES

FOLDER = Path(__file__).parent
STEPS = {step.name: step for step in LOOPS.passes}


@dataclass(frozen=True, slots=True)
class Case:
    """One nest of a file."""

    title: str
    words: str
    before: str
    after: str
    """Empty where the pass leaves the nest as it is."""

    def option(self, name: str) -> str | None:
        found = re.search(rf"\b{name}=(\S+)", self.words)
        return found and found[1]

    def machine(self) -> Machine:
        own = {n: int(v) for n in ("l1", "l2", "l3", "cores", "fma_per_cycle") if (v := self.option(n)) is not None}
        return replace(PINNED[self.option("target") or "x86-64-v4"], **{**CACHES, **own})

    def text(self) -> str:
        return f"== {self.title}{self.words and f' ({self.words})'}\n{self.before}" + (
            f"-- after\n{self.after}" if self.after else "-- unchanged\n"
        )


def read_cases(text: str) -> tuple[str, list[Case]]:
    """The comment at the head of a file, and its cases."""
    head, *parts = re.split(r"^== ", text, flags=re.M)
    cases = []
    for part in parts:
        first, _, rest = part.partition("\n")
        title, words = re.fullmatch(r"(.*?)(?: \(([^()]*=[^()]*)\))?", first).groups()  # type: ignore[union-attr]
        before, mark, after = re.split(r"^-- (after|unchanged)\n", rest.rstrip() + "\n", flags=re.M)
        assert mark == "after" or not after.strip(), title
        cases.append(Case(title, words or "", before, after))
    return head, cases


def run_pass(name: str, nest: LoopNest, case: Case) -> LoopNest:
    ctx = LoopContext(case.machine(), case.option("reassociate") != "no")
    return STEPS[name].run(nest, ctx)


def run_nest(nest: LoopNest, sizes: dict[str, int]) -> list[np.ndarray[Any, Any]]:
    """What its arguments hold afterwards; before, they hold small whole numbers."""
    arrays = []
    for b in nest.buffers:
        if b.space == "argument":
            shape = tuple(evaluate(e, sizes) for e in b.shape)
            drawn = np.random.default_rng(zlib.crc32(b.name.encode())).integers(1, 5, shape)
            drawn = np.sort(drawn) if b.name == "ptr" else drawn  # ends of segments
            arrays.append(drawn.astype(b.dtype.numpy))
    assert interpret_loops(nest, arrays, sizes) == []
    return arrays


PATHS = sorted(FOLDER.glob("*.loops"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_pass_makes_what_the_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    head, cases = read_cases(path.read_text())
    made = []
    for case in cases:
        nest = parse_loops(case.before)
        verify_loops(nest)
        changed = run_pass(path.stem, nest, case)
        verify_loops(changed)
        made.append(replace(case, before=format_loops(nest), after=format_loops(changed) if changed != nest else ""))
        sizes = {n: int(v) for n, v in re.findall(r"\b([A-Z]\w*)=(\d+)", case.words)}
        if changed != nest and case.option("run") != "no":
            for one, two in zip(run_nest(nest, sizes), run_nest(changed, sizes), strict=True):
                np.testing.assert_array_equal(one.ravel(), two.ravel(), err_msg=case.title)  # dimensions may be merged
    text = head + "\n".join(case.text() for case in made)
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    for case, now in zip(cases, made, strict=True):
        assert now.text() == case.text(), f"{path.name}: {case.title}"


def test_files_are_named_after_passes() -> None:
    assert PATHS and {path.stem for path in PATHS} <= STEPS.keys()
