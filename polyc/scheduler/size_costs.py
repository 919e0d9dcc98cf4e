"""What a program costs at any sizes, computed in one way: its contractions (`contractions.costs`), and what they pass on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from math import inf

from polyc.code_limits import MAX_STRIDE
from polyc.ir.expr import Expr, Select, Size, eq, int_const, substitute, walk
from polyc.ir.versions import NEVER
from polyc.machine import Machine
from polyc.poly.ranges import assume_sizes, estimate_extent
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import access_motions
from polyc.scheduler.amounts import A, Amount, as_expr, ceil_div, product, total
from polyc.scheduler.contractions.choice import Choice, choose, estimate
from polyc.scheduler.contractions.contraction import Contraction, call_trips, find_contraction, measure_call
from polyc.scheduler.contractions.operands import form_extent
from polyc.scheduler.distribute import reread_cycles
from polyc.scheduler.traffic import pass_cycles, write_cycles


@dataclass(frozen=True, slots=True)
class Form:
    """A program before scheduling, rewritten as `Version.form` and `Version.known` say; `folds`: pairs of sizes that a call
    replaces by 1 and their product (`fold_sizes`)."""

    scop: Scop
    number: int = 0
    known: Mapping[str, int] = field(default_factory=dict)
    folds: Sequence[tuple[str, str]] = ()

    def fits(self, sizes: Mapping[str, int]) -> bool:
        return all(sizes[name] == value for name, value in self.known.items())

    def fold(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` as the code meets them."""
        folded = dict(sizes)
        for first, second in self.folds:
            folded[first], folded[second] = 1, folded[first] * folded[second]
        return folded


class CostModel:
    """The contractions of a program at any sizes, and what they cost; `whole`: with all other statements."""

    def __init__(
        self,
        form: Form,
        target: Machine,
        constants: Collection[str],
        statements: Sequence[ScopStatement],
        whole: bool,
    ) -> None:
        self.form, scop = form, form.scop
        self.scop, self.target, self.constants, self.statements = scop, target, constants, statements
        taken = {s.name for s in statements}
        self.others = [(s, _weigh_reads(s, target, scop)) for s in scop.statements if s.name not in taken] if whole else []

    def at(self, sizes: Mapping[str, int]) -> list[Contraction | None]:
        """The contractions at some sizes."""
        ranges = assume_sizes(self.scop.ranges, self.scop.program.defined_sizes, self.form.fold(sizes))
        scop = replace(self.scop, ranges=ranges)
        found = []
        for s in self.statements:
            estimates = {i: estimate_extent(s.extents[i], ranges.typical) for i in s.trips}
            trips = {i: max(1, n) for i, n in estimates.items() if n is not None}
            found.append(find_contraction(replace(s, trips=trips), scop, self.target))
        return found

    def choose(self, found: Sequence[Contraction | None]) -> list[Choice | None]:
        return [None if c is None else choose(c, self.target, self.constants) for c in found]

    def tiled_sizes(self, sizes: Mapping[str, int]) -> tuple[set[str], set[str]]:
        """Sizes that are extents of left indices along which register tiles at `sizes` have several elements; and others."""
        found = self.at(sizes)
        cut, left = set[str](), set[str]()
        for c, choice in zip(found, self.choose(found), strict=True):
            if c is None or choice is None:
                continue
            for i in c.left:
                (cut if i in choice.way.tile else left).update(n.name for n in walk(c.s.extents[i]) if isinstance(n, Size))
        return cut, left - cut

    def work(self) -> Expr:
        """Products of all contractions."""
        return self._folded(as_expr(total(product(call_trips(s).values()) for s in self.statements), 1))

    def cost(self, found: Sequence[Contraction | None], choices: Sequence[Choice | None]) -> Expr:
        """The cost at the sizes of a call, where contractions are computed as `choices` say that were made for `found`."""
        scop, terms, written = self.scop, list[Amount](), dict[str, list[Amount]]()
        for s, (along, per_vector, lanes) in self.others:
            trips = call_trips(s)
            terms.append(per_vector * product(ceil_div(n, lanes) if i == along else n for i, n in trips.items()))
            if not s.is_reduction and not self._is_passed_on(s.target):
                size = scop.tensors[s.target].dtype.itemsize
                written.setdefault(s.target, []).append(product(trips.values()) * size)
        terms += [write_cycles(total(parts), inf, self.target) for parts in written.values()]
        for c, choice in zip(found, choices, strict=True):
            if c is not None:
                # Each pass of loops that are shared with other statements is weighed alone.
                shared = [] if choice is None else [i for i in self._shared_loops(c) if i not in choice.way.tile]
                if self._is_apart(c, shared):
                    terms += [pass_cycles(n, n, self.target) for n in _passed(c, shared, call_trips(c.s))]
                    shared = []
                one = estimate(c, measure_call(c, scop, shared), choice, self.target, self.constants)
                trips = call_trips(c.s)
                terms.append(one * product(trips[i] for i in shared))
        cost = self._folded(as_expr(total(terms)))
        for name, value in self.form.known.items():
            cost = Select(eq(Size(name), value), cost, NEVER)
        return cost

    def _folded(self, cost: Expr) -> Expr:
        """Over the sizes of a call, before it replaces any."""
        for first, second in self.form.folds:
            merged: dict[str, Expr] = {first: int_const(1), second: Size(first) * Size(second)}
            cost = substitute(cost, {}, merged)
        return cost

    def _shared_loops(self, c: Contraction) -> list[str]:
        """Left indices that move the result and one operand, both of which other statements of the program have to do with."""
        if not self._is_passed_on(c.s.target):
            return []
        movers = {i: [v for v in c.views if v.moves(i)] for i in c.left}
        return [i for i, moved in movers.items() if len(moved) == 1 and self._is_passed_on(moved[0].operand.read.tensor)]

    def _is_apart(self, c: Contraction, shared: Sequence[str]) -> bool:
        """Whether `c` is taken out of loops that it might share (`distribute_bands`) at the sizes that it was made for, and so
        at all others of its version: in each pass it would read a large operand anew."""
        again = reread_cycles(shared, c.s, self.scop, self.target) if shared else 0.0
        passed = total(_passed(c, shared, c.trips))
        return again > 0 and again > pass_cycles(passed, passed, self.target)

    def _is_passed_on(self, tensor: str) -> bool:
        return self.scop.tensors[tensor].role == "temporary"


def _passed(c: Contraction, shared: Sequence[str], trips: Mapping[str, A]) -> list[A]:
    """Bytes that a contraction reads and writes of what it shares loops for, where it is so long."""
    moved = [v for v in c.views if any(v.moves(i) for i in shared)]
    sizes: list[A] = [product(form_extent(f, trips) for f in v.operand.forms) * v.itemsize for v in moved]
    sizes.append(product(trips[i] for i in c.left) * c.itemsize)
    return sizes


def _weigh_reads(s: ScopStatement, target: Machine, scop: Scop) -> tuple[str | None, float, int]:
    """Of a statement that is no contraction: the index along memory of what it writes, cycles per vector, and its lanes."""
    write, *read = access_motions(s)
    last = (write.coefficients[-1] if write.coefficients else None) or {}
    along = next((i for i, step in last.items() if abs(step) <= MAX_STRIDE), None)
    if along is None:
        return None, target.loops.read * len(read), 1
    size = scop.tensors[s.target].dtype.itemsize
    lanes = max(1, target.lanes(size))
    costs = target.loops
    cycles = sum(costs.far_read if m.motion(along) == "strided" else costs.read for m in read)
    return along, cycles * lanes * size / target.cache_line, lanes
