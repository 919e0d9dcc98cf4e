"""Which states of a loop are kept for its adjoint, which needs them from the last to the first, and what is computed again.

With `kept` places for states, the first one's included, and every part computed at most r times on the way to its adjoint,
``binomial(kept + r, kept)`` parts can be gone back through, and that many are needed: Griewank and Walther, "Algorithm 799:
revolve" (ACM TOMS 26, 2000).
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import TypeVar

State = TypeVar("State")


def count_advances(parts: int, kept: int) -> int:
    """The least number of parts that are computed to get to the beginnings of all `parts`, from the last to the first."""
    if parts < 2:
        return 0
    r = _repetitions(parts, kept)
    return r * parts - comb(kept + r, r - 1)


def _repetitions(parts: int, kept: int) -> int:
    r = 1
    while comb(kept + r, kept) < parts:
        r += 1
    return r


def choose_split(parts: int, kept: int) -> int:
    """The part, counted from the first, whose beginning is kept next; 0: none, as there is place for the first alone."""
    if kept < 2 or parts < 2:
        return 0
    # The cost is linear between the numbers of parts at which one of both sides is computed once more.
    r = _repetitions(parts, kept)
    turns = [comb(kept + k, kept) for k in range(max(0, r - 2), r + 1)] + [parts - comb(kept - 1 + k, k) for k in range(r + 1)]
    places = {min(max(m, 1), parts - 1) for m in turns}
    return min(sorted(places), key=lambda m: m + count_advances(m, kept) + count_advances(parts - m, kept - 1))


def go_back(
    parts: int,
    kept: int,
    state: State,
    advance: Callable[[State, int, int], State],
    take: Callable[[int, State], None],
) -> None:
    """Call `take(n, state at the beginning of part n)` for every part from the last to the first.

    `advance(state, m, n)` computes the state at the beginning of part n from that of part m.  At most `kept` states are held
    here, that of the first part included, beside the one that is in the works."""

    def visit(low: int, high: int, at: State, places: int) -> None:
        while high - low > 1:
            middle = choose_split(high - low, places)
            if not middle:
                take(high - 1, advance(at, low, high - 1))
                high -= 1
            else:
                visit(low + middle, high, advance(at, low, low + middle), places - 1)
                high = low + middle
        if high > low:
            take(low, at)

    visit(0, parts, state, kept)
