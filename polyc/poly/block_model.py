"""The polyhedral model that blocks are planned in: a scop, with the first element and the extent of a block among its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy

from polyc.ir.components import Component, order_components
from polyc.ir.expr import (
    Call,
    Expr,
    Pad,
    Read,
    Select,
    Size,
    all_hold,
    ge,
    gt,
    int_const,
    lt,
    maximum,
    minimum,
    rewrite,
)
from polyc.ir.program import Program, map_expressions
from polyc.ir.simplify import simplify
from polyc.poly.extraction import extract_scop, place_inside
from polyc.poly.ranges import Interval, Ranges
from polyc.poly.scop import Scop
from polyc.poly.sizes import Sizes


@dataclass(frozen=True)
class Axis:
    """A dimension of results that is cut: a block has ``first <= position < first + count``; both are names of sizes."""

    first: str
    count: str


@dataclass(eq=False)
class BlockModel:
    """`scop` is that of `program`, with borders written out as reads; all of its sets have `sizes.parameters`.

    `results` are versions that have one shape, cut alike: by `axes`, one for each dimension (None: the whole of it).  Others
    than the first may have more dimensions at the end, which are whole.
    """

    program: Program
    ranges: Ranges
    scop: Scop
    results: tuple[str, ...]
    axes: tuple[Axis | None, ...]
    sizes: Sizes
    """Its context: blocks have elements and lie inside the results."""
    components: list[Component]
    """Of the statements that the results need, in the order of their reads."""

    def value(self, expr: Expr) -> islpy.PwAff:
        """``[sizes] -> { [v] }``"""
        return self.sizes.value(expr)

    def align(self, relation: islpy.Map) -> islpy.Map:
        """A relation over the sizes of the program, with those of blocks as well."""
        return relation.align_params(self.sizes.context.get_space())


def make_model(program: Program, ranges: Ranges, results: Sequence[str], axes: Sequence[Axis | None]) -> BlockModel:
    """`program` has all of its sizes defined, and no results but `results`."""
    names = [n for a in axes if a is not None for n in (a.first, a.count)]
    sizes = Sizes([*ranges.parameters, *names])
    sizes.context = ranges.context.align_params(sizes.context.get_space())
    for axis, interval in zip(axes, ranges.tensors[results[0]], strict=True):
        if axis is not None:
            first, count = sizes.value(Size(axis.first)), sizes.value(Size(axis.count))
            inside = first.ge_set(sizes.constant(0)).intersect(count.ge_set(sizes.constant(1)))
            inside = inside.intersect(first.add(count).le_set(sizes.value(interval.extent)))
            sizes.context = sizes.context.intersect(inside)
    scop = extract_scop(map_expressions(program, lambda e: write_out_borders(e, ranges)), ranges)
    return BlockModel(program, ranges, scop, tuple(results), tuple(axes), sizes, order_components(program))


def write_out_borders(expr: Expr, ranges: Ranges) -> Expr:
    """Padded reads that mirror or wrap, as what they may touch: the value is no longer theirs, the elements are.

    A block's part of a tensor is mirrored at the part's own ends, so it has to reach the tensor's border where that is passed,
    and to be whole where it wraps around.  Beyond one mirroring anything is read."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Pad) or node.mode in ("value", "clamp"):
            return None
        box = ranges.tensors[node.read.tensor]
        places = [simplify(e - i.lower) for e, i in zip(node.read.subscripts, box, strict=True)]
        pairs = list(zip(places, box, strict=True))
        inside = all_hold([c for p, i in pairs for c in (ge(p, 0), lt(p, i.extent))])

        def read(chosen: Sequence[Expr]) -> Read:
            return Read(node.read.tensor, tuple(simplify(p + i.lower) for p, i in zip(chosen, box, strict=True)))

        border = read([minimum(maximum(p, 0), i.extent - 1) for p, i in pairs])
        opposite = read([Select(lt(p, 0), simplify(i.extent - 1), Select(ge(p, i.extent), int_const(0), p)) for p, i in pairs])
        anywhere = read([place_inside(p, i.extent, node.mode) for p, i in pairs])
        if node.mode == "wrap":
            touched: Expr = Call("max", (border, opposite))
        else:
            twice = 0 if node.mode == "reflect" else 1  # whether the element at the edge stands twice
            near = all_hold([c for p, i in pairs for c in (gt(p + i.extent, -twice), lt(p, 2 * i.extent - 1 + twice))])
            mirrored = read([_mirror(p, i, twice) for p, i in pairs])
            touched = Call("max", (border, Select(near, mirrored, anywhere)))
        return Select(inside, node.read, touched)

    return rewrite(expr, rule)


def _mirror(place: Expr, interval: Interval, twice: int) -> Expr:
    """What takes the place of a subscript that lies outside by less than the extent."""
    low, high = simplify(0 - place - twice), simplify(2 * interval.extent - 2 + twice - place)
    return Select(lt(place, 0), low, Select(ge(place, interval.extent), high, place))


def point_set(sizes: Sizes, values: Mapping[str, int]) -> islpy.Set:
    """``[sizes] -> { : sizes = values }``"""
    result = islpy.Set.universe(sizes.context.get_space())
    for name in sizes.parameters:
        result = result.intersect(sizes.value(Size(name)).eq_set(sizes.constant(values[name])))
    return result
