"""The stages of the default pipeline for pinned machine models.

After a change that is meant to change them: ``pytest tests/golden --update-golden``, then read the difference.
"""

from __future__ import annotations

import pytest

from polyc import driver
from polyc.config import Options
from polyc.frontends.tc import read_tc
from polyc.machine import PINNED
from tests.golden.compare import FOLDER, compare_golden
from tests.golden.programs import PROGRAMS, GoldenProgram

STAGES = {"x86-64-v2": ("loops",), "x86-64-v3": ("program", "scop", "sched", "loops"), "x86-64-v4": ("loops",)}
"""What is kept for each model: the loops show all that differs between them."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_stages(program: GoldenProgram, pytestconfig: pytest.Config) -> None:
    (parsed,) = read_tc(program.text, f"{program.name}.tc")
    for level, stages in STAGES.items():
        lowered = driver.lower(parsed, sizes=program.sizes, options=Options(), target=PINNED[level])
        for stage in stages:
            compare_golden(f"pipeline/{program.name}/{level}.{stage}", lowered.as_text(stage), pytestconfig)


def test_there_are_no_other_files() -> None:
    known = {f"{p.name}/{level}.{stage}" for p in PROGRAMS for level, stages in STAGES.items() for stage in stages}
    assert {str(f.relative_to(FOLDER / "pipeline")) for f in (FOLDER / "pipeline").rglob("*.*")} <= known
