"""The list of mutants (``tests/mutants.txt``) fits the code; whether tests notice them says ``python -m tests.mutants``."""

from __future__ import annotations

import re

from tests.mutants import MUTANTS, ROOT, is_stale, judge


def test_the_text_of_each_mutant_stands_once_in_its_file() -> None:
    """One that fails here: write what stands in the file now, or, where the condition is gone, take the mutant out."""
    stale = [f"{m.pass_name}: {m.title}" for m in MUTANTS if is_stale(m)]
    assert MUTANTS and not stale


def test_the_tests_that_should_notice_mutants_exist() -> None:
    for test in {t for m in MUTANTS for t in m.tests}:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert path.endswith(".loops") or re.search(rf"^def {name}\b", text, re.M), test
    assert all(m.tests for m in MUTANTS)


def test_only_tests_that_fail_kill_a_mutant() -> None:
    assert judge(1, "FAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed") == judge(-11, "") == judge(None, "") == "killed"
    assert judge(0, "3 passed") == "survived"
    assert judge(1, "ERROR tests/test_a.py - NameError: FAILED\n1 error") == judge(5, "no tests ran") == "broken"
