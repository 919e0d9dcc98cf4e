"""What a block of results needs of every tensor: the image of the block under the access relations, statement by statement.

The bounds of such an image are piecewise quasi-affine functions of where the block lies.  A *class* of blocks is one choice of
pieces: `derive_class` follows the pieces that hold for one block, and notes the conditions under which they are chosen.  So in
a class all bounds are single functions, the sets stay convex, and only those classes are derived that have blocks.  In the
interior of a stencil there is one class; each border adds another.

All is in zero-based coordinates (those of `poly.scop`), over the sizes of the program and of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import islpy

from polyc.ir.components import Component
from polyc.ir.expr import Const, Expr, Index, Size
from polyc.ir.read_sites import is_data_dependent
from polyc.ir.simplify import simplify
from polyc.poly import isl
from polyc.poly.block_model import BlockModel, point_set
from polyc.poly.infer import OPERATIONS_PER_STATEMENT
from polyc.poly.isl import Affine
from polyc.poly.ranges import Interval
from polyc.poly.scop import ScopStatement
from polyc.poly.sizes import Sizes

ROUNDS = 2
"""Of a recurrence, what its steps need of each other is followed that often; bounds that still move then are the tensor's."""

Bound = islpy.PwAff  # [sizes] -> { [v] }, of one piece
Box = list[tuple[Bound, Bound]]
"""Least and greatest element along each dimension."""


@dataclass(frozen=True)
class Widened:
    """A dimension of a tensor of which a block needs all, though it is cut by `axes` (positions in `BlockModel.axes`)."""

    tensor: str
    dimension: int
    axes: frozenset[int]
    reason: str


@dataclass(frozen=True, eq=False)
class BlockClass:
    """Blocks for which `condition` holds, over sizes of the program and of the block (all other fields as well).

    `tensors`: the box of each tensor version that is needed.  `statements`: the boxes of the indices of those that run; None
    for an index of a reduction that has no values, where there is only the initial value.
    """

    condition: Expr
    context: islpy.Set  # [sizes] -> { : }, the same
    tensors: Mapping[str, tuple[Interval, ...]]
    statements: Mapping[str, Mapping[str, Interval | None]]
    widened: tuple[Widened, ...] = ()


def derive_class(model: BlockModel, example: Mapping[str, int]) -> BlockClass:
    """The class of one block, given by values of all sizes; the block has elements.  The caller holds the compile lock.

    Raises `CompileBudgetError`."""
    with isl.operation_quota(OPERATIONS_PER_STATEMENT * (1 + len(model.program.statements)), "the plan of blocks"):
        return _derive(model, example)


def _derive(model: BlockModel, example: Mapping[str, int]) -> BlockClass:
    found = _Derivation(model, point_set(model.sizes, example), model.sizes.context)
    first = [(model.scop.tensors[model.results[0]].shape[d], axis) for d, axis in enumerate(model.axes)]
    zero = model.sizes.constant(0)
    block: Box = []
    for extent, axis in first:
        if axis is None:
            block.append((zero, model.value(extent).add_constant_val(islpy.Val(-1))))
        else:
            start = model.value(Size(axis.first))
            block.append((start, start.add(model.value(Size(axis.count))).add_constant_val(islpy.Val(-1))))
    for name in model.results:
        more = range(len(block), model.program.tensor(name).rank)
        found.wanted.setdefault(name, []).append(found.box_set(name, [*block, *(found.whole(name, d) for d in more)]))
    for component in reversed(model.components):
        found.follow(component)
    for name in model.program.parameters:
        box = found.hull(found.wanted.get(name, ()))
        if box is not None:
            found.tensors[name] = box
    sizes = Sizes(model.sizes.parameters)
    sizes.context = found.context
    condition = Sizes(model.sizes.parameters)
    condition.context = model.sizes.context
    tensors = {name: tuple(_interval(sizes, *pair) for pair in box) for name, box in found.tensors.items()}
    statements = {
        name: {i: None if pair is None else _interval(sizes, *pair) for i, pair in box.items()}
        for name, box in found.statements.items()
    }
    return BlockClass(condition.condition_expr(found.context), found.context, tensors, statements, tuple(found.widened))


def _interval(sizes: Sizes, low: Bound, high: Bound) -> Interval:
    extent = high.sub(low).add_constant_val(islpy.Val(1))
    return Interval(simplify(sizes.expr(low)), simplify(sizes.expr(extent)))


@dataclass(eq=False)
class _Derivation:
    model: BlockModel
    point: islpy.Set
    context: islpy.Set  # [sizes] -> { : }, convex: where the pieces so far are chosen
    wanted: dict[str, list[islpy.Set]] = field(default_factory=dict)  # [sizes] -> { T[e] }
    tensors: dict[str, Box] = field(default_factory=dict)
    statements: dict[str, dict[str, tuple[Bound, Bound] | None]] = field(default_factory=dict)
    widened: list[Widened] = field(default_factory=list)

    # Choosing pieces

    def _holds(self, condition: islpy.Set) -> bool:
        return not condition.is_disjoint(self.point)

    def _assume(self, condition: islpy.Set) -> None:
        """Narrow the context to the convex part of `condition` that the block is in."""
        for part in self.context.intersect(condition).coalesce().get_basic_sets():
            whole = islpy.Set.from_basic_set(part)
            if self._holds(whole):
                self.context = whole.remove_redundancies()
                return
        raise AssertionError("the block is in no part of a condition that it satisfies")

    def _is_live(self, elements: islpy.Set) -> bool:
        """Whether there are elements for this block, and so for its whole class."""
        some = elements.params()
        is_live = self._holds(some)
        self._assume(some if is_live else some.complement())
        return is_live

    def _choose(self, bound: islpy.PwAff) -> Bound:
        pieces = bound.intersect_params(self.context).coalesce().get_pieces()
        for where, function in pieces:
            if self._holds(where):
                if len(pieces) > 1:
                    self._assume(where)
                return islpy.PwAff.from_aff(function)
        raise AssertionError("a bound has no value at the block")

    def _same(self, a: Bound, b: Bound) -> bool:
        return bool(self.context.is_subset(a.eq_set(b)))

    def hull(self, sets: Iterable[islpy.Set]) -> Box | None:
        """The box around what is there of some sets for this block; None where that is nothing."""
        live = [s for s in sets if self._is_live(s)]
        if not live:
            return None
        box: Box = []
        for d in range(live[0].dim(islpy.dim_type.set)):
            low = high = None
            for s in live:
                least = self._choose(s.intersect_params(self.context).dim_min(d))
                greatest = self._choose(s.intersect_params(self.context).dim_max(d))
                low = least if low is None else self._choose(low.min(least))
                high = greatest if high is None else self._choose(high.max(greatest))
            assert low is not None
            assert high is not None
            box.append((low, high))
        return box

    # Sets

    def box_set(self, tensor: str, box: Box) -> islpy.Set:
        """``[sizes] -> { T[e] : low <= e <= high }``"""
        dims = [f"e{d}" for d in range(len(box))]
        return self._between(isl.set_space(self.model.sizes.parameters, tensor, dims), box)

    def _between(self, space: islpy.Space, box: Box) -> islpy.Set:
        result = islpy.Set.universe(space)
        local = islpy.LocalSpace.from_space(space)
        for d, (low, high) in enumerate(box):
            x = islpy.PwAff.from_aff(islpy.Aff.var_on_domain(local, islpy.dim_type.set, d))
            result = result.intersect(x.ge_set(low.insert_domain(space))).intersect(x.le_set(high.insert_domain(space)))
        return result

    def whole(self, tensor: str, d: int) -> tuple[Bound, Bound]:
        """All of a dimension."""
        extent = self.model.value(self.model.scop.tensors[tensor].shape[d])
        return self.model.sizes.constant(0), extent.add_constant_val(islpy.Val(-1))

    def _widen(self, tensor: str, box: Box, d: int, reason: str) -> None:
        """Take all of a dimension, and note by which axes of the results it was cut."""
        whole = self.whole(tensor, d)
        if all(self._same(a, b) for a, b in zip(box[d], whole, strict=True)):
            return
        names = self.model.sizes.parameters
        axes = {
            n
            for n, axis in enumerate(self.model.axes)
            if axis is not None
            for bound in box[d]
            for name in (axis.first, axis.count)
            if bound.involves_dims(islpy.dim_type.param, names.index(name), 1)
        }
        if axes:
            self.widened.append(Widened(tensor, d, frozenset(axes), reason))
        box[d] = whole

    # From results to inputs

    def follow(self, component: Component) -> None:
        """The boxes of the versions of one component, and what its statements want of others."""
        boxes: dict[str, Box] = {}
        sources = {name: list(self.wanted.get(name, ())) for name in component.versions}
        statements = [self.model.scop.statement(s.name) for s in component.statements]
        n_round = 0
        while True:
            changed = self._enclose(component, sources, boxes, n_round)
            if not component.is_recurrence or not changed:
                break
            n_round += 1
            sources = {name: [self.box_set(name, box)] for name, box in boxes.items()}
            for s in statements:
                for tensor, elements in self._reads(s, boxes):
                    if tensor in component.versions:
                        sources.setdefault(tensor, []).append(elements)
        self.tensors |= boxes
        for s in statements:
            self._run(s, boxes)
            for tensor, elements in self._reads(s, boxes):
                if tensor not in component.versions:
                    self.wanted.setdefault(tensor, []).append(elements)

    def _enclose(
        self, component: Component, sources: Mapping[str, Sequence[islpy.Set]], boxes: dict[str, Box], n_round: int
    ) -> bool:
        """Put `boxes` around `sources`, and say whether one has changed."""
        changed = False
        for name, sets in sources.items():
            box = self.hull(sets)
            if box is None:
                continue
            old = boxes.get(name)
            for d in range(len(box)):
                moved = old is None or not all(self._same(a, b) for a, b in zip(box[d], old[d], strict=True))
                if moved and n_round > ROUNDS:
                    self._widen(name, box, d, "each step of a recurrence needs more of the one before")
            for s in component.statements:
                if s.target == name:
                    self._widen_written(self.model.scop.statement(s.name), box)
            changed |= old is None or not all(
                self._same(a, b) for x, y in zip(box, old, strict=True) for a, b in zip(x, y, strict=True)
            )
            boxes[name] = box
        return changed

    def _widen_written(self, s: ScopStatement, box: Box) -> None:
        """Dimensions that a statement fills as a whole: by data, or by sums over elements that several indices give."""
        plain = [e.name if isinstance(e, Index) else None for e in s.subscripts]
        for d, subscript in enumerate(s.subscripts):
            if is_data_dependent(subscript):
                self._widen(s.target, box, d, "data says which elements are written")
            elif s.is_reduction and not isinstance(subscript, Const) and (plain[d] is None or plain.count(plain[d]) > 1):
                self._widen(s.target, box, d, "it is summed into computed elements")

    def _instances(self, s: ScopStatement, boxes: Mapping[str, Box]) -> islpy.Set | None:
        """``[sizes] -> { S[i] }``: those that write what is needed."""
        box = boxes.get(s.target)
        if box is None:
            return None
        write = self.model.align(s.write)
        return write.intersect_range(self._between(write.range().get_space(), box)).domain().intersect_params(self.context)

    def _reads(self, s: ScopStatement, boxes: Mapping[str, Box]) -> list[tuple[str, islpy.Set]]:
        """The elements that each read of a statement touches in this block."""
        instances = self._instances(s, boxes)
        if instances is None:
            return []
        found = [(a.tensor, self.model.align(a.relation).intersect_domain(instances).range()) for a in s.accesses]
        if s.init_domain is not None and s.init_accesses:
            initial = s.init_domain.align_params(self.context.get_space())
            initial = initial.intersect(self._between(initial.get_space(), boxes[s.target]))
            found += [(a.tensor, self.model.align(a.relation).intersect_domain(initial).range()) for a in s.init_accesses]
        return found

    def _run(self, s: ScopStatement, boxes: Mapping[str, Box]) -> None:
        """The boxes of a statement's indices, where it runs at all."""
        instances = self._instances(s, boxes)
        if instances is None:
            return
        hull = self.hull([instances])
        if not s.is_reduction:
            if hull is not None:
                self.statements[s.name] = dict(zip(s.indices, hull, strict=True))
            return
        # Elements that no point of a reduction's domain writes get the initial value.
        written = self._region(s, boxes[s.target])
        left = self.hull([written])
        if left is not None:
            found: dict[str, tuple[Bound, Bound] | None] = {}
            for n, i in enumerate(s.indices):
                found[i] = left[n] if i in s.left else None if hull is None else hull[n]
            self.statements[s.name] = found

    def _region(self, s: ScopStatement, box: Box) -> islpy.Set:
        """``[sizes] -> { S[i] : 0 <= i < extent, what i writes is in the box }``, conditions aside, for left indices."""
        space = isl.set_space(self.model.sizes.parameters, s.name, s.indices)
        affine = Affine(space, {i: n for n, i in enumerate(s.indices)})
        result = islpy.Set.universe(space).intersect_params(self.context)
        for i in s.indices:
            x = affine.pw_aff(Index(i))
            if i in s.left:
                result = result.intersect(x.ge_set(affine.constant(0))).intersect(x.lt_set(affine.pw_aff(s.extents[i])))
            else:
                result = result.intersect(x.eq_set(affine.constant(0)))
        for subscript, (low, high) in zip(s.subscripts, box, strict=True):
            if not is_data_dependent(subscript):
                x = affine.pw_aff(subscript)
                result = result.intersect(x.ge_set(low.insert_domain(space))).intersect(x.le_set(high.insert_domain(space)))
        return result
