"""Counts of programs whose derivatives are right, refused by a named error, or wrong.

``python -m tests.gradients.matrix [conformance] [polybench] [example] [random[=500]] [mixed[=500]] [NAME…] [kernels]``;
all kinds by default.  With ``kernels`` gradients are compiled as well, and compared with the interpreter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from polyc.ir.types import BF16, BOOL, F16, F32, F64, I32
from tests.gradients.helpers import (
    RIGHT,
    Case,
    Outcome,
    check_derivatives,
    check_exactly,
    check_kernel,
    count_outcomes,
    is_polynomial,
    perturbed,
)
from tests.gradients.sources import all_cases, mixed_case
from tests.property.strategies import cases, draw_cases

RANDOM = 500
TYPES = (F64, F64, F32, F32, F16, BF16, I32, BOOL)
"""Mostly floats, as the others are not differentiated."""


def outcome_of(make: Callable[[], Case], has_kernel: bool = False) -> Outcome | str:
    """What came of a program; the text of the failure where something is wrong."""
    try:
        case = make()
        found = check_derivatives(perturbed(case))
        if is_polynomial(case.program) and "right" in (found.forward, found.reverse):
            check_exactly(case)
        if has_kernel and found.reverse == RIGHT:
            found = Outcome(found.forward, check_kernel(perturbed(case)))
    except Exception as error:  # whatever it is, the others are counted as well
        return f"wrong: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return found


def chosen(words: list[str]) -> Iterator[tuple[str, Callable[[], Case]]]:
    kinds = [w for w in words if w in ("conformance", "polybench", "example")]
    counts = [int(w.partition("=")[2] or RANDOM) for w in words if w.startswith("random")]
    n_mixed = max([0 if words else RANDOM, *(int(w.partition("=")[2] or RANDOM) for w in words if w.startswith("mixed"))])
    names = [w for w in words if w not in kinds and not w.startswith(("random", "mixed"))]
    if names or kinds or not words:
        for name, make in all_cases():
            if (not kinds and not names) or any(name.startswith(k) for k in kinds) or name.split()[1] in names:
                yield name, make
    for count in counts or ([] if words else [RANDOM]):
        for number, case in enumerate(draw_cases(count, cases(dtypes=TYPES))):
            yield f"random {number}", partial(lambda c: Case(c.program, c.sizes, c.arrays, c.out), case)
    for seed in range(n_mixed):
        yield f"mixed {seed}", partial(mixed_case, seed, is_whole=bool(seed % 2))


def main(words: list[str]) -> int:
    has_kernel = "kernels" in words
    words = [w for w in words if w != "kernels"]
    found: dict[str, Outcome | str] = {}
    begin = time.process_time()
    for name, make in chosen(words):
        found[name] = outcome_of(make, has_kernel)
        if "-v" in sys.argv or isinstance(found[name], str):
            print(f"{name}: {found[name]}", flush=True)
    for kind in dict.fromkeys(n.split()[0] for n in found):
        print(f"{kind}:")
        print(count_outcomes({n: o for n, o in found.items() if n.split()[0] == kind}))
    print(f"{len(found)} programs, {time.process_time() - begin:.1f} CPU-seconds")
    return min(1, sum(isinstance(o, str) for o in found.values()))


if __name__ == "__main__":
    sys.exit(main([w for w in sys.argv[1:] if w != "-v"]))
