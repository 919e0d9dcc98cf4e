"""Proof by storage: no two values that live at once share a cell, under the final, parallel and vectorised schedule.

A write w destroys element e if it hits the cell of e after e was first written and not after its last read.  Elements of
inputs live from the start to the end, those of returned versions to the end; partial sums live from the initial value on.
Iterations of a parallel loop run in any order at the same time, so they must not meet in a cell of memory that threads
share, nor pass values through memory that each thread has for itself; the lanes of a vector must not meet at all.  Of a
pipeline those may meet that wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy

from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Const
from polyc.poly.dependences import Dependences, init_name, init_write, reads_by_tensor
from polyc.poly.instances import (
    Known,
    Theta,
    Time,
    Violation,
    describe_pair,
    pairs_in_order,
    pairs_not_before,
    proof_quota,
    sets_by_name,
)
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding, Storage
from polyc.records import dataclass

_SOME_LENGTH = 40
"""Sizes at which one write of many is looked at."""


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """All accesses of one instance set to one version.  An update (`reduces`) is a write and a read."""

    instances: str
    version: str
    buffer: str
    space: str
    is_write: bool
    reduces: bool
    is_exact: bool
    to_element: islpy.Map  # [sizes] -> { I[i] -> T[e] }
    cells: islpy.Map  # [sizes] -> { T[e] -> buffer[c] }, for all integer e
    to_cell: islpy.Map  # [sizes] -> { I[i] -> buffer[c] }


@dataclass(frozen=True, eq=False, slots=True)
class ConcurrentLoop:
    """A loop whose iterations overlap.  `window`: iterations at a distance below it do; None: all (a parallel loop)."""

    window: int | None
    level: int
    """Position of the loop in the flattened schedule: the levels before it are those of the loops outside."""
    reach: dict[str, islpy.Set]  # by instance set, those below the loop only: [sizes] -> { I[i] }
    columns: int = 0
    """Of a pipeline: how many levels from `level` on say which column it is; the level behind them says how far along."""


def prove_storage(
    scop: Scop,
    dependences: Dependences,
    schedule: islpy.Schedule,
    storage: Storage,
    *,
    with_vectors: bool = True,
    buffer: str | None = None,
    known: Known | None = None,
    is_doubtful: bool = False,
) -> Violation | None:
    """None if every value is still in its cell when it is read, else one reason why not.

    Concurrent loops are the marks ``parallel …``, ``pipeline cN COLUMNS`` and ``vector cN LANES INTERLEAVE`` of the tree:
    the first member of the band below.  Versions without a folding have a buffer of their own.  Exact; what isl cannot
    decide within its quota counts as not proved.  `buffer`: the only one to look at.  `known`: what proofs of the same
    tree keep for each other.  `is_doubtful`: a storage that is tried: one write is looked at first, which finds most faults in
    a hundredth of the time.
    """
    del dependences  # what is written and read says it all: the proof shares nothing with what it checks
    try:
        with operation_quota(proof_quota(scop), "the proof of the storage"):
            uses = collect_uses(scop, storage, buffer)
            if is_doubtful:
                known = known or Known()
                violation = _check_lifetimes(scop, known.times(schedule), uses, True, known.prefixes, at_one_write=True)
                if violation is not None:
                    return violation
            return _check_storage(scop, schedule, uses, with_vectors, inputs_survive=True, known=known)
    except CompileBudgetError as error:
        return Violation(error.diagnostics[0].message)


def alias_is_safe(scop: Scop, schedule: islpy.Schedule, out_version: str, input_version: str) -> bool:
    """Whether the result may lie exactly over the input: no element of the input is read after the result's same element is
    written, in whatever order parallel iterations and vector lanes run."""
    shape, other = scop.tensors[out_version].shape, scop.tensors[input_version].shape
    rank = len(shape)
    differ = (isinstance(a, Const) and isinstance(b, Const) and a != b for a, b in zip(shape, other, strict=False))
    if rank != len(other) or any(differ):
        return False  # their dimensions were merged in different ways: equal coordinates are not equal memory
    same = Folding("alias", (None,) * rank, "argument")
    uses = [u for u in collect_uses(scop, {out_version: same, input_version: same}) if u.buffer == "alias"]
    try:
        with operation_quota(proof_quota(scop), "the proof of an alias"):
            return _check_storage(scop, schedule, uses, True, inputs_survive=False) is None
    except CompileBudgetError:
        return False


def _check_storage(
    scop: Scop,
    schedule: islpy.Schedule,
    uses: list[Use],
    with_vectors: bool,
    inputs_survive: bool,
    known: Known | None = None,
) -> Violation | None:
    known = known or Known()
    by_buffer: dict[str, list[Use]] = {}
    for use in uses:
        by_buffer.setdefault(use.buffer, []).append(use)
    loops = list(concurrent_loops(schedule, with_vectors))
    theta = known.times(schedule)
    for buffer, group in by_buffer.items():
        if any(use.to_cell.dim(islpy.dim_type.out) != group[0].to_cell.dim(islpy.dim_type.out) for use in group):
            return Violation(f"versions of different rank share the buffer {buffer}")
        if len({use.space for use in group}) != 1:
            return Violation(f"versions of different kinds of memory share the buffer {buffer}")
        if _may_overwrite(group):
            violation = _check_lifetimes(scop, theta, group, inputs_survive, known.prefixes)
            if violation is not None:
                return violation
        for loop in loops:
            violation = _check_concurrent(loop, theta, group)
            if violation is not None:
                return violation
    return None


def collect_uses(scop: Scop, storage: Storage, buffer: str | None = None) -> list[Use]:
    """Every access of every instance set that has instances, with the cells it touches; of one buffer alone, if it is given."""
    uses: list[Use] = []

    def folding(version: str) -> Folding:
        tensor = scop.tensors[version]
        whole = (None,) * len(tensor.shape)
        return storage.get(version) or Folding(version, whole, "shared" if tensor.role == "temporary" else "argument")

    def add(
        instances: str, version: str, relation: islpy.Map, is_write: bool, reduces: bool = False, is_exact: bool = True
    ) -> None:
        place = folding(version)
        if (buffer is not None and place.buffer != buffer) or relation.is_empty():
            return  # instances that never run have no place in the schedule
        cells = element_to_cell(relation.range().get_space(), place)
        to_cell = relation.apply_range(cells)
        uses.append(Use(instances, version, place.buffer, place.space, is_write, reduces, is_exact, relation, cells, to_cell))

    for s in scop.statements:
        add(s.name, s.target, s.write, True, s.is_reduction, s.writes_exactly)
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


def _check_lifetimes(
    scop: Scop,
    theta: Theta,
    group: list[Use],
    inputs_survive: bool,
    prefixes: dict[str, list[islpy.Map]],
    at_one_write: bool = False,
) -> Violation | None:
    """The uses of one buffer; `at_one_write`: what one instance of each statement overwrites."""
    tensors = scop.tensors.values()
    to_the_end = {r.version for r in scop.program.returns} | {t.name for t in tensors if t.role == "output"}
    if inputs_survive:
        to_the_end |= {t.name for t in tensors if t.role == "input"}
    at_entry = {t.name for t in tensors if t.role in ("input", "accumulated")}
    versions = list(dict.fromkeys(use.version for use in group))
    for version in versions:
        if version not in at_entry | to_the_end | prefixes.keys():
            prefixes[version] = _common_prefix([use for use in group if use.version == version], theta)
    for w in (use for use in group if use.is_write):
        to_cell = _at_one_instance(w.to_cell, scop.context) if at_one_write else w.to_cell
        for version in versions:
            of_version = [use for use in group if use.version == version]
            writes = [use for use in of_version if use.is_write]
            reads = [use for use in of_version if not use.is_write or use.reduces]
            hit = to_cell.apply_range(of_version[0].cells.reverse())  # { w[i] -> T[e] }: elements that w overwrites
            if version == w.version:
                hit = hit.subtract(w.to_element)
            hit = _within_prefix(hit, theta[w.instances], prefixes.get(version, []))
            if version not in at_entry | to_the_end:
                is_decided, clash = _compare_as_guessed(hit, w, writes, reads, theta)
                if clash is not None:
                    reason = f"the cell of a value of {scop.tensors[version].base} is overwritten while the value is needed"
                    return describe_pair(reason, clash)
                if is_decided:
                    continue
            if version not in at_entry:
                hit = _touched(hit, w, writes, theta, earlier=True)
            if version not in to_the_end:
                hit = _touched(hit, w, reads, theta, earlier=False)
            if not hit.is_empty():
                reason = f"the cell of a value of {scop.tensors[version].base} is overwritten while the value is needed"
                return _describe_overwrite(reason, hit, reads or writes, w)
    return None


def _at_one_instance(relation: islpy.Map, context: islpy.Set) -> islpy.Map:
    """The part of a relation of one instance in the middle of its domain, at sizes of some length."""
    sizes = context
    for p in range(context.dim(islpy.dim_type.param)):
        sizes = sizes.lower_bound_val(islpy.dim_type.param, p, islpy.Val(_SOME_LENGTH))
    sizes = context if sizes.is_empty() else sizes
    domain = relation.domain().intersect_params(sizes.params().sample_point().to_set())
    for d in range(domain.dim(islpy.dim_type.set)):
        if domain.is_empty() or not domain.dim_is_bounded(islpy.dim_type.set, d):
            return islpy.Map.empty(relation.get_space())
        ends = domain.dim_min_val(d), domain.dim_max_val(d)
        domain = domain.fix_val(islpy.dim_type.set, d, ends[0].add(ends[1]).div(islpy.Val(2)).floor())
    return relation.intersect_domain(domain)


def _compare_as_guessed(
    hit: islpy.Map, w: Use, writes: list[Use], reads: list[Use], theta: Theta
) -> tuple[bool, islpy.Map | None]:
    """Whether every element that w overwrites is written later, or was read before, as the order of the indices suggests; or
    pairs of w and a later read of what was there, ``{ r[i] -> w[j] }``.

    A guess, then proved level by level; that prunes, where the exact relation between all times would be a large union.
    (False, None) says nothing."""
    is_earlier = True
    for use in writes:
        if hit.is_empty():
            return True, None
        others = [o for o in writes if o is not use]
        if not use.to_element.is_injective() or not use.to_element.is_single_valued() or not use.is_exact:
            return False, None
        if any(not o.to_element.range().is_disjoint(use.to_element.range()) for o in others):
            return False, None
        pairs = hit.apply_range(use.to_element.reverse())
        if use.instances == w.instances:
            pairs = pairs.intersect(islpy.Map.lex_lt(pairs.get_space().domain()))
        if pairs_not_before(pairs, theta[w.instances], theta[use.instances]) is None:
            hit = hit.subtract(pairs.apply_range(use.to_element)).coalesce()
        earlier = hit.apply_range(use.to_element.reverse()).reverse()
        is_earlier = is_earlier and pairs_not_before(earlier, theta[use.instances], theta[w.instances]) is None
    for use in reads:
        pairs = hit.apply_range(use.to_element.reverse())
        if use.instances == w.instances:
            # An instance reads before it writes.
            pairs = pairs.subtract(islpy.Map.identity(pairs.get_space()))
        late = pairs_not_before(pairs.reverse(), theta[use.instances], theta[w.instances])
        if late is not None:
            return False, late if is_earlier and use.is_exact else None
    return True, None


def _common_prefix(uses: list[Use], theta: Theta) -> list[islpy.Map]:
    """Outer levels as functions of the element, ``{ T[e] -> [t_l] }``, as far as all uses of an element agree on the time.

    A write at another time of these levels is before all uses of the element or after all of them: most writes to the same
    cell are ruled out by that alone, at a fraction of the cost of comparing whole schedules."""
    prefix: list[islpy.Map] = []
    for level in range(len(theta[uses[0].instances].levels)):
        whole: islpy.Map | None = None
        for use in uses:
            time = use.to_element.reverse().apply_range(theta[use.instances].levels[level])
            if whole is None or not time.is_subset(whole):  # most uses agree: what follows is many times faster on one piece
                whole = time if whole is None else whole.union(time).coalesce()
        if whole is None or not whole.is_single_valued():
            break
        prefix.append(whole)
    return prefix


def _within_prefix(hit: islpy.Map, time: Time, prefix: list[islpy.Map]) -> islpy.Map:
    for own, of_element in zip(time.levels, prefix, strict=False):
        if hit.is_empty():
            break
        hit = hit.intersect(own.apply_range(of_element.reverse()))
    return hit


def _touched(hit: islpy.Map, w: Use, others: list[Use], theta: Theta, earlier: bool) -> islpy.Map:
    """The part of ``{ w[i] -> T[e] }`` where some of `others` touches e no later (or no earlier) than w runs."""
    kept = islpy.Map.empty(hit.get_space())
    for other in () if hit.is_empty() else others:
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
    """The loops below ``parallel``, ``pipeline`` and ``vector`` marks.  Raises `ValueError` for a mark that is not above a
    band, or a pipeline whose bands do not stand inside each other."""

    def visit(node: islpy.ScheduleNode, level: int) -> Iterator[ConcurrentLoop]:
        kind: object = node.get_type()
        if kind == islpy.schedule_node_type.mark:
            words = node.mark_get_id().get_name().split()
            band = node.child(0)
            if words and (words[0] in ("parallel", "pipeline") or (words[0] == "vector" and with_vectors)):
                below: object = band.get_type()
                if below != islpy.schedule_node_type.band:
                    raise ValueError(f"the mark {words[0]} is not above a band")
                window = None
                if words[0] == "vector":
                    window = int(words[2]) * int(words[3]) if len(words) > 3 else 1 << 30
                reach = sets_by_name(band.get_domain())
                columns = int(words[2]) if words[0] == "pipeline" else 0
                if columns:
                    _check_nesting(band, columns)
                yield ConcurrentLoop(window, level, reach, columns)
        elif kind == islpy.schedule_node_type.band:
            level += node.band_n_member()
        elif kind == islpy.schedule_node_type.sequence:
            level += 1
        for n in range(node.n_children()):
            yield from visit(node.child(n), level)

    yield from visit(schedule.get_root(), 0)


def _check_nesting(band: islpy.ScheduleNode, columns: int) -> None:
    """Below the mark of a pipeline `columns` members and one more must follow each other, with nothing between."""
    found = 0
    while found <= columns:
        kind: object = band.get_type()
        if kind == islpy.schedule_node_type.band:
            found += band.band_n_member()
        elif kind != islpy.schedule_node_type.mark:
            raise ValueError("the loops of a pipeline do not stand inside each other")
        band = band.child(0)


def _check_concurrent(loop: ConcurrentLoop, theta: Theta, group: list[Use]) -> Violation | None:
    if not any(use.instances in loop.reach for use in group):
        return None
    if loop.window is None and group[0].space == "thread":
        return _check_private(loop, theta, group)
    inside = [use for use in group if use.instances in loop.reach]
    for n, w in enumerate(inside):
        if not w.is_write:
            continue
        for m, use in enumerate(inside):
            if use.is_write and m < n:
                continue
            pairs = w.to_cell.apply_range(use.to_cell.reverse())
            if loop.window is not None and use is w and w.reduces and w.is_exact:
                # Lanes of a vectorised reduction have accumulators of their own; those of a scatter meet in memory.
                pairs = pairs.subtract(w.to_element.apply_range(use.to_element.reverse()))
            if pairs.is_empty():
                continue
            clash = _overlapping(loop, theta, pairs, w.instances, use.instances)
            if not clash.is_empty():
                what = "lanes of a vector" if loop.window is not None else "iterations of a parallel loop"
                what = "columns of a pipeline" if loop.columns else what
                return describe_pair(f"two {what} meet in one cell of {w.buffer}", clash)
    return None


def _overlapping(loop: ConcurrentLoop, theta: Theta, pairs: islpy.Map, a: str, b: str) -> islpy.Map:
    """Pairs in different iterations of the loop that may run at the same time."""
    pairs = pairs.intersect_domain(loop.reach[a]).intersect_range(loop.reach[b])
    # Equal outer times first: equations make the pairs few before anything splits them.
    for level in range(loop.level):
        if theta[a].constants[level] is None or theta[a].constants[level] != theta[b].constants[level]:
            pairs = pairs.intersect(theta[a].levels[level].apply_range(theta[b].levels[level].reverse())).detect_equalities()
    ta, tb = theta[a].levels[loop.level], theta[b].levels[loop.level]
    if loop.columns:
        return _ahead(loop, theta, pairs, a, b).union(_ahead(loop, theta, pairs.reverse(), b, a).reverse())
    near = "" if loop.window is None else f" and -{loop.window} < t - u < {loop.window}"
    apart = islpy.Map(f"{{ [t] -> [u] : t != u{near} }}")
    return pairs.intersect(ta.apply_range(apart).apply_range(tb.reverse()))


def _ahead(loop: ConcurrentLoop, theta: Theta, pairs: islpy.Map, a: str, b: str) -> islpy.Map:
    """Pairs of a pipeline whose second instance is of a later column, but does not wait for the first one: it is less far
    along."""
    along = loop.level + loop.columns
    pairs = pairs.intersect(theta[a].levels[along].lex_gt_map(theta[b].levels[along]))
    found = islpy.Map.empty(pairs.get_space())
    for level in range(loop.level, along):
        ta, tb = theta[a].levels[level], theta[b].levels[level]
        found = found.union(pairs.intersect(ta.lex_lt_map(tb)))
        if level < along - 1:
            pairs = pairs.intersect(ta.apply_range(tb.reverse()))
    return found


def _check_private(loop: ConcurrentLoop, theta: Theta, group: list[Use]) -> Violation | None:
    """Values in memory of one thread must stay inside one iteration of the loop, or one column of a pipeline."""
    inner = loop.level + max(1, loop.columns)
    for w in (use for use in group if use.is_write):
        for use in group:
            if use.version != w.version or (use is w and not w.reduces):
                continue
            made, needed = loop.reach.get(w.instances), loop.reach.get(use.instances)
            if made is None and needed is None:
                continue
            flow = w.to_element.apply_range(use.to_element.reverse())
            if made is not None and needed is not None:
                touched = flow.intersect_domain(made).union(flow.intersect_range(needed))
                leaving = touched.subtract(flow.intersect_domain(made).intersect_range(needed))
                a, b = theta[w.instances], theta[use.instances]
                for level in range(min(inner, len(a.levels))):
                    if a.constants[level] is None or a.constants[level] != b.constants[level]:
                        together = a.levels[level].apply_range(b.levels[level].reverse())
                        leaving = leaving.union(touched.subtract(together))
            elif made is not None:
                leaving = flow.intersect_domain(made)
            else:
                assert needed is not None
                leaving = flow.intersect_range(needed)
            if not leaving.is_empty():
                return describe_pair(f"a value passes between iterations of a parallel loop in private {w.buffer}", leaving)
    return None
