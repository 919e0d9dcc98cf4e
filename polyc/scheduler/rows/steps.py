"""What the steps of a recurrence hand to others step by step, so that its states need not be stored all at once.

``S(t,d,e) = g(d) * S(t-1,d,e) + k(t,d) * v(t,e)`` and ``o(t,e) += q(t,d) * S(t,d,e)`` share the loop over steps: the state
of one step is alive.  Apart, all states would go through memory, which is many times what is read and written otherwise.

Recurrences without a parallel row, ``p(t,i)`` and ``q(t,i)`` of conjugate gradients, are followed by what accumulates their
states: ``x(t,i) = x(t-1,i) + alpha(t-1) * p(t-1,i)``, and by sums over what each step reads: ``r(i) += s(t) * A(t,i)`` where
the steps read rows of A.  What makes a part of each state without needing them, a border of zeros
``A(t,0) = 0``, runs in their steps as well: all steps of it together are alive before the first state is.

Reference: loop fusion as a means to contract arrays (Gao, Olsen, Sarkar and Thekkath, "Collective loop fusion for array
contraction", 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from math import prod

from polyc.code_limits import MUCH
from polyc.records import dataclass
from polyc.scheduler.rows.model import AccessShape, Model
from polyc.scheduler.rows.objective import follows_closely, reads_once

MANY_STATES = 1 << 16
"""Elements of all steps together from which they are not stored."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A statement that reads its own values of earlier steps, and those that read each step's: `dimensions` of the steps."""

    writer: str
    dimensions: Mapping[str, int]


def is_recurrence(part: Sequence[str], successors: Mapping[str, set[str]]) -> bool:
    """Whether the statements of a component need values of their own."""
    return len(part) > 1 or part[0] in successors[part[0]]


def find_steps(model: Model, successors: Mapping[str, set[str]]) -> list[Steps]:
    """Recurrences over one dimension whose readers take each value once, at its own step."""
    found = (_find_readers(model, name, successors) for name in model.statements if name in successors[name])
    return [steps for steps in found if steps is not None]


def _find_readers(model: Model, writer: str, successors: Mapping[str, set[str]]) -> Steps | None:
    s = model.statements[writer]
    (write,) = (a for a in s.accesses if a.is_write)
    readers = model.readers.get(write.tensor, frozenset()) - {writer}
    is_only_here = write.tensor not in model.outputs and model.writers[write.tensor] == {writer}
    if not readers or not is_only_here or write.footprint < MANY_STATES or len(s.fixed) < s.n_dims:
        return None
    own = [e.unit_pairs for e in model.edges if e.source == e.sink == writer]
    steps = [d for d in range(s.n_dims) if not all((d, d) in pairs for pairs in own)]
    if len(steps) != 1:
        return None
    dimensions = {writer: steps[0]}
    late: set[str] = set()
    for name in readers:
        if _is_late(model, name, write.tensor, write.footprint):
            late.add(name)
            continue
        if not _takes_each_once(model, name, write.tensor):
            return None
        edges = [e.unit_pairs for e in model.edges if e.source == writer and e.sink == name]
        step = next((b for a, b in edges[0] if a == steps[0] and all((a, b) in pairs for pairs in edges)), None)
        if step is None or step not in model.statements[name].fixed:
            return None
        dimensions[name] = step
    together = dimensions.keys() - {writer}
    if not together or any(_reaches(together, name, successors) for name in readers):
        return None
    return Steps(writer, dimensions)


def _is_late(model: Model, reader: str, tensor: str, size: int) -> bool:
    return all(read.footprint * MUCH <= size for read in _find_reads(model, reader, tensor))


def _takes_each_once(model: Model, reader: str, tensor: str) -> bool:
    reads, n_dims = _find_reads(model, reader, tensor), model.statements[reader].n_dims
    return len(reads) == 1 and reads_once(reads[0], n_dims) and follows_closely(model, tensor, reader)


def _find_reads(model: Model, reader: str, tensor: str) -> list[AccessShape]:
    return [a for a in model.statements[reader].accesses if a.tensor == tensor and not a.is_write]


def _reaches(targets: Set[str], start: str, successors: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    stack = [start]
    while stack:
        fresh = successors[stack.pop()] - seen
        seen |= fresh
        stack.extend(fresh)
    return bool(seen & targets)


def find_sharing(
    model: Model,
    leaders: Sequence[str],
    others: Sequence[Sequence[str]],
    successors: Mapping[str, set[str]],
    share_steps: Callable[[Set[str], Set[str]], bool],
) -> set[str]:
    """What may run in the steps of a recurrence without a parallel row so that fewer states are stored: borders of its states,
    and recurrences that follow; empty if nothing may.

    `others`: the other components in topological order; `share_steps` says whether statements have a row of steps in common
    that moves with each of some of them."""
    together = {*leaders}
    for name in find_borders(model, {*leaders}, others, successors):
        together |= {name} if share_steps({*together, name}, {name}) else set()
    return together - {*leaders} | _find_followers(model, together, others, successors, share_steps)


def find_borders(
    model: Model, leaders: Set[str], others: Sequence[Sequence[str]], successors: Mapping[str, set[str]]
) -> list[str]:
    """Statements that make a part of the states of a recurrence, in dimensions of its steps, and need nothing of it, where no
    more than its last states would be stored but for them."""
    made = _find_written(model, leaders).keys() - find_stored(model, leaders).keys() - model.outputs
    found: list[str] = []
    for name in (part[0] for part in others if not is_recurrence(part, successors)):
        write, *read = sorted(model.statements[name].accesses, key=lambda a: not a.is_write)
        if write.tensor not in made or any(sum(map(bool, a.moves)) > 1 and a.moves[-1] != write.moves[-1] for a in read):
            continue  # a transposing copy takes rows and columns in blocks
        after = successors[name] - leaders
        if after != successors[name] and not any(_reaches(leaders, n, successors) for n in after):
            found.append(name)
    return found


def _find_followers(
    model: Model,
    leaders: Set[str],
    others: Sequence[Sequence[str]],
    successors: Mapping[str, set[str]],
    share_steps: Callable[[Set[str], Set[str]], bool],
) -> set[str]:
    """Recurrences that may run in the steps of one, beginning with those that need nothing of the others.

    They run their steps in order anyway, so that it pays at any size.  So may what makes narrower elements of many states, as
    comparisons of them, and sums over what the steps read.  What they need of single steps, their start for example, comes with
    them."""
    before = find_stored(model, leaders)
    kept: set[str] = set()
    while before.keys() - kept:
        together, later, single = {*leaders}, set[str](), set[str]()
        for part in others:
            sources = {name for name in together | later if successors[name] & {*part}}
            if part[0] in together or not sources:
                continue
            inside = {*part, *sources}
            if is_recurrence(part, successors) or _narrows(model, part[0], together) or sums_up(model, part[0], together):
                read = {a.tensor for name in part for a in model.statements[name].accesses if not a.is_write}
                is_wanted = read & find_stored(model, together).keys() - kept
                if is_wanted and sources <= together | single and share_steps(together | inside, {*part}):
                    together |= inside
                    later -= inside
                    continue
            elif sources <= together and _reads_single_steps(model, part[0], together):
                single |= {*part}
            later |= {*part}
        after = find_stored(model, together)
        if before.keys() & after.keys() == kept:
            sums = {n for n in together - leaders if sums_up(model, n, leaders)}  # their results are stored in any case
            stored = {t: size for t, size in after.items() if not model.writers[t] <= sums}
            return together - leaders if _n_bytes(model, stored) < _n_bytes(model, before) else set()
        kept |= before.keys() & after.keys()
    return set()


def _narrows(model: Model, name: str, together: Set[str]) -> bool:
    """Whether a statement without sums makes elements of a narrower type of many states that nothing else reads."""
    s, stored = model.statements[name], find_stored(model, together)
    readers = {r for t, size in stored.items() for r in model.readers[t] - together if not _is_late(model, r, t, size)}
    narrowest = min((model.statements[w].itemsize for t in stored for w in model.writers[t]), default=0)
    is_many = max(stored.values(), default=0) >= MANY_STATES
    return readers == {name} and is_many and len(s.fixed) == s.n_dims and s.itemsize < narrowest


def sums_up(model: Model, name: str, together: Set[str]) -> bool:
    """Whether a statement sums few results over many elements of a tensor, each read once, that a recurrence reads as well:
    apart it would be one more pass over what no near cache holds."""
    s = model.statements[name]
    (write,) = (a for a in s.accesses if a.is_write)
    read = {a.tensor: a.footprint for a in s.accesses if not a.is_write}
    theirs = {a.tensor: a.footprint for n in together for a in model.statements[n].accesses if not a.is_write}
    largest = max((min(size, theirs[t]) for t, size in read.items() if t in theirs), default=0)
    is_once = prod(s.extents) <= largest and MUCH * write.footprint <= largest
    return len(s.fixed) < s.n_dims and is_once and largest >= MANY_STATES


def _n_bytes(model: Model, stored: Mapping[str, int]) -> int:
    return sum(size * max(model.statements[name].itemsize for name in model.writers[t]) for t, size in stored.items())


def align_steps(model: Model, names: Set[str], known: Mapping[str, int]) -> dict[str, int]:
    """The dimensions of steps of statements that read or write, at one place of a subscript, the steps of others with `known`
    ones."""
    found, n_found = dict(known), -1
    while n_found < len(found):
        n_found = len(found)
        writes = [(a, found[name]) for name in found for a in model.statements[name].accesses if a.is_write]
        places = {a.tensor: a.moves.index(frozenset({step})) for a, step in writes if frozenset({step}) in a.moves}
        for name in names - found.keys():
            shared = [a for a in model.statements[name].accesses if a.tensor in places]
            found.update((name, d) for a in shared if len(moved := a.moves[places[a.tensor]]) == 1 for d in moved)
    return found


def find_stored(model: Model, names: Set[str]) -> dict[str, int]:
    """The tensors of which others than `names` read more than the last steps, with their sizes; results are stored anyway."""
    found = {t: size for t, size in _find_written(model, names).items() if t not in model.outputs}
    readers = {t: model.readers.get(t, frozenset()) - names for t in found}
    return {t: size for t, size in found.items() if not all(_is_late(model, reader, t, size) for reader in readers[t])}


def _reads_single_steps(model: Model, name: str, together: Set[str]) -> bool:
    return all(_is_late(model, name, tensor, size) for tensor, size in _find_written(model, together).items())


def _find_written(model: Model, names: Set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        (write,) = (a for a in model.statements[name].accesses if a.is_write)
        found[write.tensor] = max(write.footprint, found.get(write.tensor, 0))
    return found
