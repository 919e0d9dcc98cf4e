"""Token-level mutations of programs, and the run of a mutant through the whole compiler."""

from __future__ import annotations

import math
import random
import re
import warnings
from collections.abc import Callable, Mapping

import numpy as np

import polyc
from polyc.cli.run import make_accumulated, make_inputs
from polyc.diagnostics import InternalError, PolycError, PolycWarning
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Program
from tests.negative.support import check_rendering

TOKEN = re.compile(r"[ \t]+|\n|(?:min|max)=!?|[A-Za-z_]\w*|[0-9.]+(?:e-?\d+)?|[-+*<>=!]=!?|\*\*|//|&&|\|\||.", re.DOTALL)
MAX_POINTS = 100_000
"""Points of one statement; larger mutants are not run."""


def mutate(rng: random.Random, text: str, extra: list[str]) -> str:
    """One to three tokens removed, inserted, replaced, exchanged or repeated."""
    tokens = TOKEN.findall(text)
    words = [i for i, t in enumerate(tokens) if not t.isspace()]
    for _ in range(rng.randint(1, 3)):
        position, other = rng.choice(words), rng.choice(words)
        position, other = min(position, len(tokens) - 1), min(other, len(tokens) - 1)
        match rng.randrange(6):
            case 0:
                del tokens[position]
            case 1:
                tokens.insert(position, rng.choice(extra))
            case 2:
                tokens[position] = rng.choice(extra)
            case 3:
                tokens[position], tokens[other] = tokens[other], tokens[position]
            case 4:
                tokens[position] = tokens[other]
            case _:
                end = min(len(tokens), position + rng.randint(1, 8))
                tokens[position:position] = tokens[position:end]
    return "".join(tokens)


def vary(rng: random.Random, text: str, groups: list[list[str]]) -> str:
    """One to four tokens exchanged for others of their group, so that most mutants parse and many run."""
    tokens = TOKEN.findall(text)
    places = [(i, group) for i, t in enumerate(tokens) for group in groups if t in group]
    for _ in range(rng.randint(1, 4)):
        position, group = rng.choice(places)
        tokens[position] = rng.choice(group)
    return "".join(tokens)


def count_points(program: Program, sizes: Mapping[str, int]) -> int:
    """Points of the largest statement or tensor."""
    ranges = solve_ranges(program, sizes)
    boxes = [[hi - lo for lo, hi in box.values()] for box in ranges.statements.values()]
    boxes += [[hi - lo for lo, hi in intervals] for intervals in ranges.tensors.values()]
    return max((math.prod(extents) for extents in boxes), default=0)


def run_mutant(make: Callable[[], polyc.Operator], rng: random.Random) -> str:
    """Read, lower at small sizes, run, and compare with the interpreter: ``"ran"``, or the code of the named error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolycWarning)
            operator = make()
            program = operator.program
            sizes = {name: rng.choice((1, 2, 3, 4, 5, 7)) for name in program.sizes}
            if count_points(program, sizes) > MAX_POINTS:
                return "large"
            arrays, values = make_inputs(program, {}, sizes, seed=1)
            out = make_accumulated(program, arrays, values, seed=1)
            with np.errstate(all="ignore"):
                operator(*arrays, out=out or None, **values)
    except PolycError as error:
        assert not isinstance(error, InternalError), error
        check_rendering(str(error))
        return error.code
    return "ran"
