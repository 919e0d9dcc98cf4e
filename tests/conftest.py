"""Options of the whole test suite, and what its tests share."""

from __future__ import annotations

import gc
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from polyc.codegen.objects import jit
from polyc.codegen.objects.host import host_target, physical_host
from polyc.diagnostics import UnsupportedError
from polyc.machine import PINNED, select_model
from tests.objects import begin_test, remember_objects

# Every test compiles anew, whatever earlier runs left behind; POLYC_CACHE=1 and a POLYC_CACHE_DIR run the suite warm.
os.environ.setdefault("POLYC_CACHE", "0")

# Where Python may leave no bytecode beside the sources, each process that a test starts would compile polyc's modules again.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite the golden files of tests/golden instead of comparing."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip what runs code for instructions that this machine lacks, or that of `POLYC_MACHINE`: such tests may look at the code
    first."""
    try:
        return (yield)
    except UnsupportedError as error:
        has_all = min(host_target().vector_bits, physical_host().vector_bits) == 512
        if any(d.code == "unsupported-foreign-target" for d in error.diagnostics) and not has_all:
            pytest.skip("this machine lacks instructions that the test runs")
        raise


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out combinations of the tests marked ``pairs`` or ``each`` whose pairs of values, or values, are all in others that
    stay, and tests for the instruction set of this machine by its name that are there for the machine itself, too."""
    if os.environ.get("POLYC_TEST_COMBINATIONS") == "all" or any("[" in argument for argument in config.args):
        return
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        for mark in COVERS:
            if item.get_closest_marker(mark):
                tests[item.nodeid.partition("[")[0], mark].append(item)
    left_out: set[pytest.Item] = set()
    for (name, mark), combinations in tests.items():
        values = [values_of(item) for item in combinations]
        least, cover = COVERS[mark]
        assert len(values[0]) >= least, f"{name} has too few axes for {mark}"
        left_out |= {item for item, stays in zip(combinations, cover(values), strict=True) if not stays}
    left_out |= find_same_machine([item for item in items if item not in left_out])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def find_same_machine(items: list[pytest.Item]) -> set[pytest.Item]:
    """Tests that have a value such as "x86-64-v3" where others have "host" or None and this machine is no more than that."""
    host = host_target()
    named = {n for n in PINNED if replace(select_model(host, n), name=host.name, features=host.features) == host}

    def known(item: pytest.Item, **changes: object) -> tuple[str, dict[str, str]]:
        assert isinstance(item, pytest.Function)
        return item.nodeid.partition("[")[0], {n: repr(v) for n, v in (item.callspec.params | changes).items()}

    of_machines = [
        (item, name)
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for name, value in item.callspec.params.items()
        if isinstance(value, str) and value in named
    ]
    tests = {item.nodeid.partition("[")[0] for item, _ in of_machines}
    others = [known(item) for item in items if item.nodeid.partition("[")[0] in tests]
    return {item for item, name in of_machines if any(known(item, **{name: same}) in others for same in ("host", None))}


def cover_pairs(combinations: list[tuple[str, ...]]) -> list[bool]:
    """Which of the combinations stay, so that each pair of values that one of them has is in one that stays.

    Those with the most pairs that none before has come first: few more stay than the two longest axes have pairs."""
    pairs = [set(itertools.combinations(enumerate(values), 2)) for values in combinations]
    stays, missing = [False] * len(pairs), set().union(*pairs)
    for least in range(len(pairs[0]), 0, -1):
        for n, found in enumerate(pairs):
            if len(found & missing) >= least:
                stays[n] = True
                missing -= found
    return stays


def cover_values(combinations: list[tuple[str, ...]]) -> list[bool]:
    """Which of the combinations stay, so that each value of each axis is in one that stays, all about as often."""
    found = [set(enumerate(values)) for values in combinations]
    stays, missing, uses = [False] * len(found), set().union(*found), Counter[tuple[int, str]]()
    while missing:
        best = max(range(len(found)), key=lambda n: (len(found[n] & missing), -sum(uses[v] for v in found[n])))
        stays[best] = True
        missing -= found[best]
        uses.update(found[best])
    return stays


COVERS = {"pairs": (3, cover_pairs), "each": (2, cover_values)}
"""By mark: the fewest axes that it is for, and which combinations stay."""


def values_of(item: pytest.Item) -> tuple[str, ...]:
    """What tells a combination from others on each of its axes; parameters that are given together are one axis."""
    assert isinstance(item, pytest.Function)
    given = {name: repr(value) for name, value in item.callspec.params.items()}
    for mark in item.iter_markers("parametrize"):
        first, *more = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        given[first] = ", ".join([given[first], *(given.pop(name) for name in more)])
    return tuple(given.values())


def pytest_configure() -> None:
    jit.compile_object = remember_objects(jit.compile_object)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begin_test(item)
    mark, before = item.get_closest_marker("machine"), os.environ.get("POLYC_MACHINE")
    if mark is None:
        return (yield)
    os.environ["POLYC_MACHINE"] = mark.args[0]
    try:
        return (yield)
    finally:
        del os.environ["POLYC_MACHINE"]
        if before is not None:
            os.environ["POLYC_MACHINE"] = before


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: looking for garbage among it, again and again as it grows, takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(300_000, 20, 20)  # what a test makes is mostly not garbage before it ends, and then needs no collector
        gc.enable()
