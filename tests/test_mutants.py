"""The list of mutants (``tests/mutants.txt``) fits the code; whether tests notice them says ``python -m tests.mutants``."""

from __future__ import annotations

import re

from tests.mutants import MUTANTS, ROOT, is_stale, judge


def test_the_text_of_each_mutant_stands_once_in_its_file() -> None:
    """One that fails here: write what stands in the file now, or, where the condition is gone, take the mutant out."""
    stale = [f"{m.pass_name}: {m.title}" for m in MUTANTS if is_stale(m)]
    assert MUTANTS and not stale


def test_the_tests_that_should_notice_mutants_exist() -> None:
    for test in {m.test for m in MUTANTS}:
        path, _, name = test.partition("::")
        name, _, nests = name.rstrip("]").partition("[")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M), test
        assert "/loopnest/" not in path or (ROOT / path).with_name(f"{nests}.loops").exists(), test


def test_only_tests_that_fail_kill_a_mutant() -> None:
    assert judge(1, "FAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed") == judge(-11, "") == judge(None, "") == "killed"
    assert judge(0, "3 passed") == "survived"
    assert judge(1, "ERROR tests/test_a.py - NameError: FAILED\n1 error") == judge(5, "no tests ran") == "broken"
