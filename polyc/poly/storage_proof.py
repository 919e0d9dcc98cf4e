"""Proof by storage: no two values that live at once share a cell, under the final, parallel and vectorised schedule.

A write w destroys element e if it hits the cell of e after e was first written and not after its last read.  Elements of
inputs live from the start to the end, those of returned versions to the end; partial sums live from the initial value on.
Iterations of a parallel loop run in any order at the same time, so they must not meet in a cell of memory that threads
share, nor pass values through memory that each thread has for itself; the lanes of a vector must not meet at all.  Of a
pipeline those may meet that wait for each other.
"""

from __future__ import annotations

import islpy

from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Const
from polyc.poly.concurrency import check_concurrent, concurrent_loops
from polyc.poly.dependences import Dependences
from polyc.poly.instances import (
    Known,
    Theta,
    Time,
    Violation,
    describe_pair,
    pairs_in_order,
    pairs_not_before,
    proof_quota,
)
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding, Storage
from polyc.poly.uses import Use, collect_uses

_SOME_LENGTH = 40
"""Sizes at which one write of many is looked at."""


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
            violation = check_concurrent(loop, theta, group)
            if violation is not None:
                return violation
    return None


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
    touching = [(use.to_element.reverse(), theta[use.instances].levels) for use in uses]
    for level in range(len(touching[0][1])):
        whole: islpy.Map | None = None
        for instances, levels in touching:
            time = instances.apply_range(levels[level])
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
