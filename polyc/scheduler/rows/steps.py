"""What the steps of a recurrence hand to others step by step, so that its states need not be stored all at once.

``S(t,d,e) = g(d) * S(t-1,d,e) + k(t,d) * v(t,e)`` and ``o(t,e) += q(t,d) * S(t,d,e)`` share the loop over steps: the state
of one step is alive.  Apart, all states would go through memory, which is many times what is read and written otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from polyc.records import dataclass
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.objective import follows_closely, reads_once

MANY_STATES = 1 << 16
"""Elements of all steps together from which they are not stored."""

FEW_STEPS = 4
"""What reads at most one of so many elements, the last state for example, may come after all steps."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A statement that reads its own values of earlier steps, and those that read each step's: `dimensions` of the steps."""

    writer: str
    dimensions: Mapping[str, int]


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
        reader = model.statements[name]
        (*reads,) = (a for a in reader.accesses if a.tensor == write.tensor and not a.is_write)
        if all(read.footprint * FEW_STEPS <= write.footprint for read in reads):
            late.add(name)
            continue
        if len(reads) != 1 or not reads_once(reads[0], reader.n_dims) or not follows_closely(model, write.tensor, name):
            return None
        edges = [e.unit_pairs for e in model.edges if e.source == writer and e.sink == name]
        step = next((b for a, b in edges[0] if a == steps[0] and all((a, b) in pairs for pairs in edges)), None)
        if step is None or step not in reader.fixed:
            return None
        dimensions[name] = step
    together = dimensions.keys() - {writer}
    if not together or any(_reaches(together, name, successors) for name in readers):
        return None
    return Steps(writer, dimensions)


def _reaches(targets: Set[str], start: str, successors: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    stack = [start]
    while stack:
        fresh = successors[stack.pop()] - seen
        seen |= fresh
        stack.extend(fresh)
    return bool(seen & targets)
