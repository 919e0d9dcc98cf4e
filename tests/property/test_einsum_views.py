"""Random einsums of views (transposed, reversed, strided, broadcast, misaligned), compiled at once: against NumPy, exactly.

By hand, for a longer run: ``POLYC_EXAMPLES=3000 pytest tests/property/test_einsum_views.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "30"))
EXTENTS = (0, 1, 1, 2, 3, 5, 8, 17)
LETTERS = "ijkmZ"
TYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "i1", "?", "c8", "c16")


def make_view(chance: random.Random, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Small whole numbers in memory that is laid out in some way."""
    values = np.random.default_rng(chance.getrandbits(32)).integers(0 if dtype in ("u1", "?") else -3, 4, shape)
    array = np.asarray(values.astype(dtype))
    if dtype[0] == "c":
        array += 1j * np.roll(array, 1)
    if array.ndim == 0:
        return array
    match chance.randrange(7):
        case 0:
            return np.asfortranarray(array)
        case 1:  # every other element, backwards
            wide = np.zeros([2 * n + 1 for n in shape], dtype)
            part = wide[tuple(slice(2 * n - 1 if n else 0, None, -2) for n in shape)][tuple(slice(0, n) for n in shape)]
            part[...] = array
            return part
        case 2:
            return np.broadcast_to(array[:1], array.shape) if array.shape[0] else array
        case 3:
            memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
            misaligned = memory.view(dtype)[: array.size].reshape(array.shape)
            misaligned[...] = array
            return misaligned
        case 4:
            order = list(range(array.ndim))
            chance.shuffle(order)
            return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
        case _:
            return array


def make_einsum(chance: random.Random) -> tuple[str, list[np.ndarray], dict[str, object]]:
    extents = {x: chance.choice(EXTENTS) for x in LETTERS}
    behind = [chance.choice((1, 2, 3)) for _ in range(chance.randrange(3))]
    types = chance.sample(TYPES, 2) if chance.random() < 0.3 else [chance.choice(TYPES)] * 2
    terms, arrays = [], []
    for _ in range(chance.choice((1, 2, 2, 2, 3, 4))):
        letters = chance.choices(LETTERS, k=chance.randint(0, 3))
        ones = {x for x in set(letters) if chance.random() < 0.1}
        shape = [1 if x in ones else extents[x] for x in letters]
        if chance.random() < 0.3:
            place, count = chance.randint(0, len(letters)), chance.randint(0, len(behind))
            letters.insert(place, "...")
            shape[place:place] = [chance.choice([n, n, 1]) for n in behind[len(behind) - count :]]
        terms.append("".join(letters))
        arrays.append(make_view(chance, shape, chance.choice(types)))
    subscripts = ",".join(terms)
    if chance.random() < 0.7:
        used = sorted(set(subscripts) - set(",."))
        output = chance.sample(used, chance.randint(0, len(used)))
        if "..." in subscripts:
            output.insert(chance.randint(0, len(output)), "...")
        subscripts += "->" + "".join(output)
    options: dict[str, object] = {"order": chance.choice("CFAK")} if chance.random() < 0.2 else {}
    return subscripts, arrays, options


def check_einsum(seed: int) -> None:
    """Compile and run the einsum of `seed`, and compare; AssertionError with its arguments where they differ."""
    subscripts, arrays, options = make_einsum(random.Random(seed))
    layouts = [f"{a.dtype}{a.shape}{a.strides}" for a in arrays]
    shown = f"seed={seed} {subscripts} {' '.join(layouts)} {options}"
    try:
        expected = np.einsum(subscripts, *arrays, **options)
    except ValueError as error:  # a letter that stands for several extents
        with pytest.raises(PolycError):
            polyc.einsum(subscripts, *arrays, **options)
        assert "operands could not be broadcast" in str(error) or "dimensions in operand" in str(error), shown
        return
    if expected.dtype == np.float16 and np.abs(expected).max(initial=0) > 2048:
        return  # NumPy rounds every step
    before = [a.copy() for a in arrays]
    try:
        got = polyc.einsum(subscripts, *arrays, **options)
    except PolycError as error:
        raise AssertionError(f"{error}\n{shown}") from error
    assert got.dtype == expected.dtype and np.shape(got) == np.shape(expected), shown
    np.testing.assert_array_equal(got, expected, err_msg=shown)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy, err_msg=shown)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="POLYC_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 1 << 30))
def test_einsums_of_views_agree_with_numpy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("POLYC_EINSUM", "compile")
    check_einsum(seed)
