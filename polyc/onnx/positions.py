"""One kernel for the steps of a loop that a model writes out: programs that differ only in where they read their inputs.

A recurrent layer unrolled by ``Slice``, or a list of heads, reads ``x[i, 0, k]``, ``x[i, 1, k]``, …  Such a position is a
number in an address and decides nothing else, so code for any of them is as fast as code for one: the position becomes a size
symbol (`ir.generalize`), and the plan gives its value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from polyc.ir.expr import Expr, Index, Pad, Read, Size, children, walk
from polyc.ir.generalize import Numbers, generalize, take_numbers
from polyc.ir.program import Program, map_expressions
from polyc.ir.traced import is_traced
from polyc.onnx.shapes import Choice

FEWEST = 3
"""Positions from which on they share code: a symbol takes a little longer to compile than a number."""


def share_positions(choices: Sequence[Choice]) -> list[Choice]:
    """`choices` with one program for those that read their inputs at different places and are the same otherwise."""
    groups: dict[tuple[Program, tuple[str, ...]], dict[Numbers, list[int]]] = {}
    for k, choice in enumerate(choices):
        if not choice.is_general:
            form, numbers = take_numbers(choice.program)
            if not any(map(is_traced, numbers)):
                groups.setdefault((form, choice.constants), {}).setdefault(numbers, []).append(k)
    result = list(choices)
    for (_, constants), places in groups.items():
        samples = _positive(list(places))
        if len(samples) < FEWEST:
            continue
        made = generalize(choices[places[samples[0]][0]].program, samples)
        if made is None or not _are_positions(made.program, constants):
            continue
        for numbers in samples:
            sizes = made.sizes_of(numbers)
            if sizes is not None:
                for k in places[numbers]:
                    result[k] = Choice(made.program, constants, sizes)
    return result


def _positive(samples: list[Numbers]) -> list[Numbers]:
    """Those in which what varies is a number that a size may be."""
    varying = [k for k, column in enumerate(zip(*samples, strict=True)) if len(set(column)) > 1]
    return [numbers for numbers in samples if all(numbers[k] > 0 for k in varying)]


def _are_positions(program: Program, constants: Collection[str]) -> bool:
    """Whether sizes only say which elements of its inputs a program reads, in dimensions that no loop runs over."""
    inputs = set(program.parameters) - set(constants)
    found = True

    def look(expr: Expr) -> Expr:
        nonlocal found
        found = found and not _has_other_size(expr, inputs)
        return expr

    map_expressions(program, look)
    return found


def _has_other_size(expr: Expr, inputs: set[str]) -> bool:
    """Whether a size stands anywhere but in such a subscript."""
    match expr:
        case Size():
            return True
        case Pad():
            return _has_size(expr)
        case Read() if expr.tensor in inputs:
            moving = [e for e in expr.subscripts if any(isinstance(n, (Index, Read)) for n in walk(e))]
            return any(_has_size(e) for e in moving)
    return any(_has_other_size(e, inputs) for e in children(expr))


def _has_size(expr: Expr) -> bool:
    return any(isinstance(n, Size) for n in walk(expr))
