"""Which statements of a program are the steps of a time loop, and what a step reads of those before it.

A *step* is one value of a dimension of the tensors that a recurrence computes: ``U[t, i]`` from ``U[t - 1, i]`` and
``U[t - 2, i]`` has its steps along dimension 0, and a *window* of two of them.  What reads a step at a time (``V[t, i]`` of
``U[t, i]``) has steps, too; what adds them all up, and what reads the last ones, comes behind the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyc.diagnostics import UnsupportedError
from polyc.gradients.rules import refuse
from polyc.ir.components import order_components, order_statements
from polyc.ir.expr import Expr, Index, Read, index_names, reads
from polyc.ir.program import Program, Statement, statement_reads
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import constant_of, difference, simplify
from polyc.poly.frames import upper_end
from polyc.poly.ranges import Ranges
from polyc.records import dataclass

Place = tuple[str | None, int]
"""Of a subscript that counts steps: its index and what is added to that (``t + 2``), or None and a number."""


FARTHEST = 16
"""Steps before the end of a loop that what comes behind it may read."""


@dataclass(frozen=True, slots=True)
class TimeLoop:
    """The steps from `first` to before `end` are computed alike; those before `first` are the start.

    `axes`: the dimension of steps of every version that has one.  `windows`: how many steps a later one, or what comes behind
    the loop, reads of it.  `sums`: the versions that add steps up."""

    axes: Mapping[str, int]
    windows: Mapping[str, int]
    first: int
    end: Expr
    sums: frozenset[str]

    @property
    def window(self) -> int:
        return max(self.windows.values())

    @property
    def states(self) -> tuple[str, ...]:
        """The versions that are handed from step to step."""
        return tuple(v for v, window in self.windows.items() if window)

    def place(self, tensor: str, subscripts: Sequence[Expr]) -> Place | None:
        """Where an access to one of `axes` stands in the steps."""
        return place_of(subscripts[self.axes[tensor]])

    def reads(self, s: Statement) -> list[Read]:
        """What a statement reads of steps."""
        return [r for r in statement_reads(s) if r.tensor in self.axes]


def place_of(subscript: Expr) -> Place | None:
    e = simplify(subscript)
    number = constant_of(e)
    if number is not None:
        return None, number
    names = index_names(e)
    if len(names) != 1 or reads(e):
        return None
    (t,) = names
    offset = difference(e, Index(t))
    return None if offset is None else (t, offset)


def find_time_loop(program: Program, ranges: Ranges, later: Sequence[Read]) -> TimeLoop | None:
    """The loop over the recurrences of which `later`, the reads of an adjoint, wants many steps; None where there are none.

    Raises UnsupportedError ``unsupported-gradient`` where steps cannot be told from what is around them."""
    axes: dict[str, int] = {}
    for component in order_components(program):
        if not component.is_recurrence:
            continue
        found = find_axes(program, component.versions)
        if found is None:
            if any(r.tensor in component.versions for r in later):
                s = component.statements[0]
                message = f"{program.tensor(s.target).base} has no dimension along which it needs only what lies before"
                raise _refuse(
                    message, s, "let its first index count the steps, and read earlier ones at that index less a number"
                )
            continue
        along = _follow(program, found)
        if any(r.tensor in along and index_names(r.subscripts[along[r.tensor]]) for r in later):
            axes |= found
    return _Finder(program, ranges, axes).run() if axes else None


def _follow(program: Program, axes: Mapping[str, int]) -> dict[str, int]:
    """The dimensions of steps of some versions, and of all that is computed of them step by step."""
    along = dict(axes)
    is_new = True
    while is_new:
        is_new = False
        for s in program.statements:
            steps = {p[0] for r in statement_reads(s) if r.tensor in along and (p := place_of(r.subscripts[along[r.tensor]]))}
            alone = [d for d, e in enumerate(s.subscripts) if (p := place_of(e)) is not None and p[0] in steps - {None}]
            if s.target not in along and len(alone) == 1:
                along[s.target], is_new = alone[0], True
    return along


def find_axes(program: Program, versions: Sequence[str]) -> dict[str, int] | None:
    """The dimension of steps of each version of a recurrence."""
    first = versions[0]
    for d in range(program.tensor(first).rank):
        axes = _spread(program, versions, {first: d})
        if axes is not None and set(axes) == set(versions):
            distances = [n for s in program.statements if s.target in axes for n in _distances(s, axes)]
            if all(n is not None and n >= 0 for n in distances) and any(distances):
                return axes
    return None


def _spread(program: Program, versions: Collection[str], known: dict[str, int]) -> dict[str, int] | None:
    """The dimensions that follow from that of one version, as statements read each other at one index."""
    axes, stack = dict(known), list(known)
    writers = program.writers()
    while stack:
        version = stack.pop()
        for s in writers[version]:
            own = place_of(s.subscripts[axes[version]])
            for read in (r for r in statement_reads(s) if r.tensor in versions and r.tensor not in axes):
                places = [place_of(e) for e in read.subscripts]
                fitting = [d for d, p in enumerate(places) if p is not None and own is not None and p[0] == own[0]]
                if own is None or own[0] is None:
                    continue
                if len(fitting) != 1:
                    return None
                axes[read.tensor] = fitting[0]
                stack.append(read.tensor)
    return axes


def _distances(s: Statement, axes: Mapping[str, int]) -> list[int | None]:
    """How many steps lie between a statement's own and those it reads; None where that is no number."""
    own = place_of(s.subscripts[axes[s.target]])
    found: list[int | None] = []
    for read in (r for r in statement_reads(s) if r.tensor in axes):
        there = place_of(read.subscripts[axes[read.tensor]])
        found.append(None if own is None or there is None or there[0] != own[0] else own[1] - there[1])
    return found


class _Finder:
    """Spreads steps from recurrences to what reads them step by step, and says where the loop begins and ends."""

    def __init__(self, program: Program, ranges: Ranges, axes: dict[str, int]) -> None:
        self.program, self.ranges, self.axes = program, ranges, axes
        self.cores = set(axes)
        self.sums: set[str] = set()
        self.late: list[Statement] = []

    def run(self) -> TimeLoop:
        for s in order_statements(self.program):
            if s.target not in self.cores:
                self._sort(s)
        stepped = [s for s in self.program.statements if s.target in self.axes]
        windows = dict.fromkeys(self.axes, 0)
        ends: list[Expr] = []
        first = 0
        for s in stepped:
            own = self._check(s)
            for read, distance in zip(self._read(s), _distances(s, self.axes), strict=True):
                assert distance is not None
                if own[0] is not None:
                    windows[read.tensor] = max(windows[read.tensor], distance)
            if own[0] is None:
                first = max(first, own[1] + 1)
                continue
            interval = self.ranges.statements[s.name].indices[own[0]]
            lower = constant_of(simplify(interval.lower + own[1]))
            if lower is None:
                raise _refuse("the number of the first step is not known", s, "let steps begin at a number")
            first = max(first, lower)
            end = simplify(upper_end(interval) + own[1])
            if s.target in self.cores:
                ends.append(end)
            elif any(self._is_before(end, e, s) for e in ends):
                raise _refuse("it has fewer steps than the recurrence that it reads", s, "let both end at the same step")
        end = ends[0]
        for other in ends[1:]:
            end = other if self._is_before(other, end, stepped[0]) else end
        for s in (s for s in self.program.statements if s.target in self.sums):
            offsets = [(r.tensor, p[1]) for r in self._read(s) if (p := place_of(r.subscripts[self.axes[r.tensor]]))]
            for tensor, offset in offsets:
                windows[tensor] = max(windows[tensor], max(o for _, o in offsets) - offset)
        for s in self.late:
            self._look_back(s, first, end, windows)
        self._check_behind()
        for version, window in windows.items():
            if window:
                lower = constant_of(self.ranges.tensors[version][self.axes[version]].lower)
                if lower is None:
                    raise _refuse("the number of the first step is not known", stepped[0], "let steps begin at a number")
                first = max(first, lower + window)
        return TimeLoop(self.axes, windows, first, end, frozenset(self.sums))

    def _read(self, s: Statement) -> list[Read]:
        return [r for r in statement_reads(s) if r.tensor in self.axes]

    def _is_before(self, a: Expr, b: Expr, s: Statement) -> bool:
        found = difference(a, b)
        if found is None:
            raise _refuse("its loops over steps end in ways that are not compared", s, "let all end at the same step")
        return found < 0

    def _sort(self, s: Statement) -> None:
        """Whether a statement behind the recurrences has steps, adds steps up, or reads single ones."""
        found = self._read(s)
        if s.target in self.axes or not found:
            return
        indices = {None if (p := place_of(r.subscripts[self.axes[r.tensor]])) is None else p[0] for r in found}
        if indices == {None}:
            self.late.append(s)
            return
        if len(indices) > 1 or None in indices:
            raise self._apart(s)
        (t,) = indices
        assert t is not None
        alone = [d for d, e in enumerate(s.subscripts) if (p := place_of(e)) is not None and p[0] == t]
        if t not in s.left_indices:
            is_sum = s.reduction is not None and s.reduction.op == "add" and len(self.program.writers()[s.target]) == 1
            if not is_sum:
                raise _refuse("it reduces over steps by something else than a sum", s, "reduce step by step, in a recurrence")
            self._check_range(s, t)
            self.sums.add(s.target)
        elif len(alone) != 1:
            raise self._apart(s)
        elif self.program.tensor(s.target).role != "temporary":
            message = f"all steps of {self.program.tensor(s.target).base} are returned"
            raise _refuse(message, s, "return the last ones, or sums over them; or leave out memory=")
        else:
            self.axes[s.target] = alone[0]

    def _apart(self, s: Statement) -> UnsupportedError:
        message = f"{self.program.tensor(s.target).base} reads steps in another order than they are computed in"
        return _refuse(message, s, "read them at one index, or at the last step; or leave out memory=")

    def _check(self, s: Statement) -> Place:
        """Where a statement with steps stands, once what it reads lies before it."""
        own = place_of(s.subscripts[self.axes[s.target]])
        t = self.program.tensor(s.target)
        self._check_range(s, None if own is None else own[0])
        if own is None:
            raise _refuse(f"the step of {t.base} is no index plus a number", s, "let an index count the steps")
        if t.role != "temporary":
            raise _refuse(
                f"all steps of {t.base} are returned", s, "return the last ones, or sums over them; or leave out memory="
            )
        if any(n is None or n < 0 for n in _distances(s, self.axes)):
            raise self._apart(s)
        return own

    def _check_range(self, s: Statement, t: str | None) -> None:
        if any(w.index == t for w in loaded_clauses(s.where)):
            raise _refuse("the number of steps is data of an array", s, "let a size, or an argument such as int64 T, say it")

    def _look_back(self, s: Statement, first: int, end: Expr, windows: dict[str, int]) -> None:
        """How far before the end of the loop a statement behind it reads."""
        for read in self._read(s):
            subscript = read.subscripts[self.axes[read.tensor]]
            place, behind = place_of(subscript), difference(end, subscript)
            if place is not None and place[1] < first:
                continue
            if behind is None or not 1 <= behind <= FARTHEST:
                raise self._apart(s)
            windows[read.tensor] = max(windows[read.tensor], behind)

    def _check_behind(self) -> None:
        """No step and no sum may need what comes behind the loop."""
        behind = {v for s in self.late for v in self.program.made_from(s.target)}
        behind |= {v for name in self.sums for v in self.program.made_from(name) - {name}}
        for s in self.program.statements:
            if s.target in behind and (s.target in self.axes or s.target in self.sums):
                raise _refuse("it needs the end of the loop over the steps that it reads", s, "make it an operator of its own")


def _refuse(message: str, s: Statement, help: str) -> UnsupportedError:
    return refuse(f"with memory=, {message}", s.span, help)
