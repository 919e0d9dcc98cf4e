"""Proof by storage: no two values that live at once share a cell, under the final, parallel and vectorised schedule.

A write w destroys element e if it hits the cell of e after e was first written and not after its last read.  Elements of
inputs live from the start to the end, those of returned versions to the end; partial sums live from the initial value on.
Iterations of a parallel loop run in any order at the same time, so they must not meet in a cell of memory that threads
share, nor pass values through memory that each thread has for itself; the lanes of a vector must not meet at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy

from polyc.diagnostics import CompileBudgetError
from polyc.poly.dependences import Dependences, init_name, init_write, reads_by_tensor
from polyc.poly.instances import QUOTA, Theta, Violation, describe_pair, maps_of, pairs_in_order, schedule_maps, walk_tree
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding, Storage


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """All accesses of one instance set to one version.  An update (`reduces`) is a write and a read."""

    instances: str
    version: str
    buffer: str
    space: str
    is_write: bool
    reduces: bool
    to_element: islpy.Map  # [sizes] -> { I[i] -> T[e] }
    cells: islpy.Map  # [sizes] -> { T[e] -> buffer[c] }, for all integer e
    to_cell: islpy.Map  # [sizes] -> { I[i] -> buffer[c] }


@dataclass(frozen=True, eq=False, slots=True)
class ConcurrentLoop:
    """A loop whose iterations overlap.  `window`: iterations at a distance below it do; None: all (a parallel loop)."""

    window: int | None
    outer: dict[str, islpy.Map]  # by instance set, those below the loop: [sizes] -> { I[i] -> [times of outer loops] }
    iteration: dict[str, islpy.Map]  # by instance set: [sizes] -> { I[i] -> [t] }


def prove_storage(
    scop: Scop, dependences: Dependences, schedule: islpy.Schedule, storage: Storage, *, with_vectors: bool = True
) -> Violation | None:
    """None if every value is still in its cell when it is read, else one reason why not.

    Concurrent loops are the marks ``parallel …`` and ``vector cN LANES INTERLEAVE`` of the tree: the first member of the
    band below.  Versions without a folding have a buffer of their own.  Exact; what isl cannot decide within its quota
    counts as not proved.
    """
    del dependences  # what is written and read says it all: the proof shares nothing with what it checks
    try:
        with operation_quota(QUOTA, "the proof of the storage"):
            return _check_storage(scop, schedule, collect_uses(scop, storage), with_vectors, inputs_survive=True)
    except CompileBudgetError as error:
        return Violation(error.diagnostics[0].message)


def alias_is_safe(scop: Scop, schedule: islpy.Schedule, out_version: str, input_version: str) -> bool:
    """Whether the result may lie exactly over the input: no element of the input is read after the result's same element is
    written, in whatever order parallel iterations and vector lanes run."""
    rank = len(scop.tensors[out_version].shape)
    if rank != len(scop.tensors[input_version].shape):
        return False
    same = Folding("alias", (None,) * rank, "argument")
    uses = [u for u in collect_uses(scop, {out_version: same, input_version: same}) if u.buffer == "alias"]
    try:
        with operation_quota(QUOTA, "the proof of an alias"):
            return _check_storage(scop, schedule, uses, True, inputs_survive=False) is None
    except CompileBudgetError:
        return False


def _check_storage(
    scop: Scop, schedule: islpy.Schedule, uses: list[Use], with_vectors: bool, inputs_survive: bool
) -> Violation | None:
    by_buffer: dict[str, list[Use]] = {}
    for use in uses:
        by_buffer.setdefault(use.buffer, []).append(use)
    loops = list(concurrent_loops(schedule, with_vectors))
    theta: Theta | None = None
    for buffer, group in by_buffer.items():
        if any(use.to_cell.dim(islpy.dim_type.out) != group[0].to_cell.dim(islpy.dim_type.out) for use in group):
            return Violation(f"versions of different rank share the buffer {buffer}")
        if len({use.space for use in group}) != 1:
            return Violation(f"versions of different kinds of memory share the buffer {buffer}")
        if _may_overwrite(group):
            theta = schedule_maps(schedule) if theta is None else theta
            violation = _check_lifetimes(scop, theta, group, inputs_survive)
            if violation is not None:
                return violation
        for loop in loops:
            violation = _check_concurrent(loop, group)
            if violation is not None:
                return violation
    return None


def collect_uses(scop: Scop, storage: Storage) -> list[Use]:
    """Every access of every instance set, with the cells it touches."""
    uses: list[Use] = []

    def folding(version: str) -> Folding:
        tensor = scop.tensors[version]
        whole = (None,) * len(tensor.shape)
        return storage.get(version) or Folding(version, whole, "shared" if tensor.role == "temporary" else "argument")

    def add(instances: str, version: str, relation: islpy.Map, is_write: bool, reduces: bool = False) -> None:
        place = folding(version)
        cells = element_to_cell(relation.range().get_space(), place)
        to_cell = relation.apply_range(cells)
        uses.append(Use(instances, version, place.buffer, place.space, is_write, reduces, relation, cells, to_cell))

    for s in scop.statements:
        add(s.name, s.target, s.write, True, s.is_reduction)
        for tensor, relation in reads_by_tensor(s.accesses).items():
            add(s.name, tensor, relation, False)
        if s.init_domain is not None:
            add(init_name(s.name), s.target, init_write(s), True)
            for tensor, relation in reads_by_tensor(s.init_accesses).items():
                add(init_name(s.name), tensor, relation, False)
    return uses


def element_to_cell(space: islpy.Space, folding: Folding) -> islpy.Map:
    """``[sizes] -> { T[e] -> buffer[e mod moduli] }`` for the set space of T."""
    local = islpy.LocalSpace.from_space(space)
    target = space.map_from_set().set_tuple_name(islpy.dim_type.out, folding.buffer)
    cells = islpy.MultiAff.zero(target)
    for d, modulus in enumerate(folding.moduli):
        value = islpy.Aff.var_on_domain(local, islpy.dim_type.set, d)
        cells = cells.set_aff(d, value if modulus is None else value.mod_val(islpy.Val(modulus)))
    return islpy.Map.from_multi_aff(cells)


def _may_overwrite(group: list[Use]) -> bool:
    """Whether two elements can share a cell of the buffer at all."""
    if len({use.version for use in group}) > 1:
        return True
    return not group[0].cells.is_injective()


def _check_lifetimes(scop: Scop, theta: Theta, group: list[Use], inputs_survive: bool) -> Violation | None:
    tensors = scop.tensors.values()
    to_the_end = {r.version for r in scop.program.returns} | {t.name for t in tensors if t.role == "output"}
    if inputs_survive:
        to_the_end |= {t.name for t in tensors if t.role == "input"}
    at_entry = {t.name for t in tensors if t.role in ("input", "accumulated")}
    versions = list(dict.fromkeys(use.version for use in group))
    for w in (use for use in group if use.is_write):
        for version in versions:
            of_version = [use for use in group if use.version == version]
            writes = [use for use in of_version if use.is_write]
            reads = [use for use in of_version if not use.is_write or use.reduces]
            hit = w.to_cell.apply_range(of_version[0].cells.reverse())  # { w[i] -> T[e] }: elements that w overwrites
            if version == w.version:
                hit = hit.subtract(w.to_element)
            if version not in at_entry:
                hit = _touched(hit, w, writes, theta, earlier=True)
            if version not in to_the_end:
                hit = _touched(hit, w, reads, theta, earlier=False)
            if not hit.is_empty():
                reason = f"the cell of a value of {scop.tensors[version].base} is overwritten while the value is needed"
                return _describe_overwrite(reason, hit, reads or writes, w)
    return None


def _touched(hit: islpy.Map, w: Use, others: list[Use], theta: Theta, earlier: bool) -> islpy.Map:
    """The part of ``{ w[i] -> T[e] }`` where some of `others` touches e no later (or no earlier) than w runs."""
    kept = hit.subtract(hit)
    for other in others:
        pairs = hit.apply_range(other.to_element.reverse())
        if other.instances == w.instances:
            # An instance reads before it writes, so it cannot destroy what it reads itself.
            pairs = pairs.subtract(islpy.Map.identity(pairs.get_space()))
        if pairs.is_empty():
            continue
        if earlier:
            pairs = pairs_in_order(pairs.reverse(), theta[other.instances], theta[w.instances]).reverse()
        else:
            pairs = pairs_in_order(pairs, theta[w.instances], theta[other.instances])
        kept = kept.union(pairs.apply_range(other.to_element).intersect(hit))
    return kept


def _describe_overwrite(reason: str, hit: islpy.Map, others: list[Use], w: Use) -> Violation:
    for other in others:
        pairs = hit.apply_range(other.to_element.reverse())
        if not pairs.is_empty():
            return describe_pair(reason, pairs.reverse())
    return Violation(f"{reason}: {w.instances}")


def concurrent_loops(schedule: islpy.Schedule, with_vectors: bool) -> Iterator[ConcurrentLoop]:
    """The loops below ``parallel`` and ``vector`` marks.  Raises `ValueError` for a mark that is not above a band."""
    for node in walk_tree(schedule.get_root()):
        kind: object = node.get_type()
        if kind != islpy.schedule_node_type.mark:
            continue
        words = node.mark_get_id().get_name().split()
        if not words or words[0] not in ("parallel", "vector") or (words[0] == "vector" and not with_vectors):
            continue
        window = None
        if words[0] == "vector":
            window = int(words[2]) * int(words[3]) if len(words) > 3 else 1 << 30
        band = node.child(0)
        below: object = band.get_type()
        if below != islpy.schedule_node_type.band:
            raise ValueError(f"the mark {words[0]} is not above a band")
        member = islpy.UnionMap.from_union_pw_aff(band.band_get_partial_schedule().get_at(0))
        yield ConcurrentLoop(
            window,
            _by_name(band.get_prefix_schedule_relation()),
            _by_name(member.intersect_domain(band.get_domain())),
        )


def _by_name(union: islpy.UnionMap) -> dict[str, islpy.Map]:
    return {str(m.get_tuple_name(islpy.dim_type.in_)): m for m in maps_of(union)}


def _check_concurrent(loop: ConcurrentLoop, group: list[Use]) -> Violation | None:
    if not any(use.instances in loop.iteration for use in group):
        return None
    if loop.window is None and group[0].space == "thread":
        return _check_private(loop, group)
    inside = [use for use in group if use.instances in loop.iteration]
    for n, w in enumerate(inside):
        if not w.is_write:
            continue
        for m, use in enumerate(inside):
            if use.is_write and m < n:
                continue
            pairs = w.to_cell.apply_range(use.to_cell.reverse())
            if loop.window is not None and use is w and w.reduces:
                # Lanes of a vectorised reduction have accumulators of their own.
                pairs = pairs.subtract(w.to_element.apply_range(use.to_element.reverse()))
            clash = _overlapping(loop, pairs, w.instances, use.instances)
            if not clash.is_empty():
                what = "iterations of a parallel loop" if loop.window is None else "lanes of a vector"
                return describe_pair(f"two {what} meet in one cell of {w.buffer}", clash)
    return None


def _overlapping(loop: ConcurrentLoop, pairs: islpy.Map, a: str, b: str) -> islpy.Map:
    """Pairs in different iterations of the loop that may run at the same time."""
    ta, tb = loop.iteration[a], loop.iteration[b]
    pairs = pairs.intersect_domain(ta.domain()).intersect_range(tb.domain())
    pairs = pairs.intersect(loop.outer[a].apply_range(loop.outer[b].reverse()))
    pairs = pairs.subtract(ta.apply_range(tb.reverse()))
    if loop.window is None or pairs.is_empty():
        return pairs
    distance = islpy.Map(f"{{ [t] -> [u] : -{loop.window} < t - u < {loop.window} }}")
    return pairs.intersect(ta.apply_range(distance).apply_range(tb.reverse()))


def _check_private(loop: ConcurrentLoop, group: list[Use]) -> Violation | None:
    """Values in memory of one thread must stay inside one iteration of the loop."""
    for w in group:
        if not w.is_write:
            continue
        for use in group:
            if use.version != w.version or (use is w and not w.reduces):
                continue
            flow = w.to_element.apply_range(use.to_element.reverse())
            inside = [name in loop.iteration for name in (w.instances, use.instances)]
            if inside == [True, True]:
                ta, tb = loop.iteration[w.instances], loop.iteration[use.instances]
                within = flow.intersect(loop.outer[w.instances].apply_range(loop.outer[use.instances].reverse()))
                within = within.intersect(ta.apply_range(tb.reverse()))
                touched = flow.intersect_domain(ta.domain()).union(flow.intersect_range(tb.domain()))
                flow = touched.subtract(within)
            elif inside == [True, False]:
                flow = flow.intersect_domain(loop.iteration[w.instances].domain())
            elif inside == [False, True]:
                flow = flow.intersect_range(loop.iteration[use.instances].domain())
            else:
                continue
            if not flow.is_empty():
                return describe_pair(f"a value passes between iterations of a parallel loop in private {w.buffer}", flow)
    return None
