"""What passes ask of a machine model, and which model a processor gets."""

from __future__ import annotations

import pytest

from polyc.machine import MACHINES, X86_64_V3, X86_64_V4, Level, Share, select_model
from polyc.machine.presets import recognise
from polyc.records import replace


def features_of(name: str, *more: str) -> tuple[str, ...]:
    return (*(f.lstrip("+") for f in MACHINES[name].features.split(",")), *more)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (features_of("x86-64-v4", "sse4a"), "zen4"),
        (features_of("x86-64-v4", "sse4a", "avx512vp2intersect"), "zen5"),
        (features_of("x86-64-v4"), "skylake-x"),
        (features_of("x86-64-v4", "amx-tile"), "sapphire-rapids"),
        (features_of("x86-64-v3", "sse4a"), "zen2"),
        (features_of("x86-64-v3", "sse4a", "vaes"), "zen3"),
        (features_of("x86-64-v3"), "x86-64-v3"),
        (("sse2",), "generic"),
    ],
)
def test_processors_are_recognised_by_their_features(features: tuple[str, ...], expected: str) -> None:
    assert recognise("x86_64-unknown-linux-gnu", features).name == expected


def test_arm_processors_are_recognised_by_their_triple() -> None:
    assert recognise("aarch64-unknown-linux-gnu", ("neon",)).name == "neoverse"
    assert recognise("arm64-apple-darwin", ("neon",)).name == "neoverse"


def test_an_older_instruction_set_keeps_the_memory_of_the_machine() -> None:
    host = replace(MACHINES["zen5"], cores=3, memory=replace(X86_64_V4.memory, held=0.5))
    older = select_model(host, "x86-64-v3")
    assert older.features == X86_64_V3.features and older.vector_bits == 256
    assert (older.cores, older.l1, older.memory) == (3, 48 << 10, host.memory)


def test_shares_of_a_cache() -> None:
    assert X86_64_V4.room(Level.L2, Share.QUARTER) == 256 << 10
    assert X86_64_V4.fits(28 << 10, Level.L1, Share.ALL) and not X86_64_V4.fits((28 << 10) + 1, Level.L1, Share.ALL)
    assert X86_64_V4.room(Level.L2, Share.CORNER) == X86_64_V4.l2 // 32


def test_rows_that_meet_in_few_sets_conflict() -> None:
    assert X86_64_V4.conflicts(5, 4096) and not X86_64_V4.conflicts(4, 4096)
    assert X86_64_V4.conflicts(9, 2048) and not X86_64_V4.conflicts(8, 2048)
    assert not X86_64_V4.conflicts(64, 4096 + 64)
    assert not X86_64_V4.conflicts(12, 4096, soon_used=True) and X86_64_V4.conflicts(13, 4096, soon_used=True)
    assert not MACHINES["zen5"].conflicts(6, 4096)  # twelve ways


def test_strips_of_points_hide_latencies() -> None:
    assert X86_64_V4.strip_vectors == 4 and MACHINES["zen4"].strip_vectors == 2 and MACHINES["zen2"].strip_vectors == 5
    assert replace(X86_64_V4, fma_latency=1, fma_per_cycle=1).strip_vectors == 1


def test_few_rows_are_followed() -> None:
    assert X86_64_V4.is_followed(16) and not X86_64_V4.is_followed(17)


@pytest.mark.parametrize(
    ("name", "is_fast"), [("zen3", True), ("zen4", False), ("zen5", True), ("skylake-x", False), ("x86-64-v2", False)]
)
def test_gathers(name: str, is_fast: bool) -> None:
    assert MACHINES[name].has_fast_gather == is_fast
    assert not replace(MACHINES[name], gather=1.5).has_fast_gather
    assert replace(MACHINES[name], gather=0.5).has_fast_gather == MACHINES[name].has_gather
