"""One program for several classes of blocks: where their bounds differ, these are arguments.

The classes of a picture's borders have the same statements over other boxes, and few blocks each.  Where classes say different
things of a bound, a size of its own stands for it, one for all bounds of which each class says the same (the rows of an input's
region, and those of the first statement over it); its values are those of each block's class.  Nothing is trusted here either:
`blocks.restriction.restrict_program` infers the ranges of the program again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import islpy

from polyc.ir.expr import Const, Expr, Size, any_holds
from polyc.ir.simplify import simplify
from polyc.poly.block_model import BlockModel
from polyc.poly.block_regions import BlockClass
from polyc.poly.ranges import Interval
from polyc.poly.sizes import Sizes
from polyc.records import replace


@dataclass(frozen=True, eq=False)
class Merged:
    """`found` is over the sizes of `model`, which has those of `values` beside its own: for each what the classes say of it."""

    model: BlockModel
    found: BlockClass
    values: Mapping[str, tuple[Expr, ...]]


class _Bounds:
    """Names for bounds, by what the classes say of them."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self.values: dict[str, tuple[Expr, ...]] = {}
        self._known: dict[tuple[Expr, ...], Expr] = {}

    def name(self, said: tuple[Expr, ...]) -> Expr:
        if len(set(said)) == 1:
            return said[0]
        for known, size in self._known.items():  # one that differs by a number needs no name
            differences = {simplify(a - b) for a, b in zip(said, known, strict=True)}
            if len(differences) == 1 and isinstance(shift := differences.pop(), Const):
                return simplify(size + shift)
        name = next(n for k in count(len(self.values)) if (n := f"bound{k}") not in self._taken)
        self._taken.add(name)
        self.values[name], self._known[said] = said, Size(name)
        return Size(name)

    def interval(self, said: Sequence[Interval]) -> Interval:
        return Interval(self.name(tuple(i.lower for i in said)), self.name(tuple(i.extent for i in said)))


def outline(found: BlockClass) -> Hashable:
    """What classes have to have in common for one program: tensors, and statements with the indices that have values."""
    statements = ((s, frozenset(i for i, pair in box.items() if pair is not None)) for s, box in found.statements.items())
    return frozenset(found.tensors), frozenset(statements)


def merge_classes(model: BlockModel, classes: Sequence[BlockClass], taken: set[str]) -> Merged:
    """The classes, which have what `outline` tells in common, as one; `taken` are names that sizes cannot have."""
    first = classes[0]
    bounds = _Bounds(taken)
    tensors = {
        name: tuple(bounds.interval([c.tensors[name][d] for c in classes]) for d in range(len(box)))
        for name, box in first.tensors.items()
    }
    statements: dict[str, dict[str, Interval | None]] = {}
    for name, box in first.statements.items():
        statements[name] = {}
        for i in box:
            said = [s for c in classes if (s := c.statements[name][i]) is not None]
            statements[name][i] = bounds.interval(said) if said else None
    sizes = Sizes([*model.sizes.parameters, *bounds.values])
    space = sizes.context.get_space()
    context = islpy.Set.empty(space)
    for n, c in enumerate(classes):
        own = c.context.align_params(space)
        for name, values in bounds.values.items():
            own = own.intersect(sizes.value(Size(name)).eq_set(sizes.value(values[n])))
        context = context.union(own)
    sizes.context = context
    found = BlockClass(any_holds(c.condition for c in classes), context, tensors, statements)
    return Merged(replace(model, sizes=sizes), found, bounds.values)
