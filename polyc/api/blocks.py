"""Operators on arrays in chunks: which blocks there are, from the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from polyc import driver
from polyc.api.block_ledger import Ledger, Memo
from polyc.api.block_report import BlockReport, Stage
from polyc.api.block_steps import run_recurrences
from polyc.api.block_sums import find_sums
from polyc.api.checkpoints import read_bytes
from polyc.api.dask_arrays import Graphs, as_chunked, load_dask, read_chunks
from polyc.api.sources import FixedSource
from polyc.blocks.chunks import propose_chunks
from polyc.blocks.cuts import Cut, find_cut
from polyc.blocks.gathered import gather_sums
from polyc.blocks.plan import BlockPlan, Chunks, NotPlanned, plan_cuttable, refit_plan, size_values
from polyc.blocks.programs import check_program
from polyc.blocks.steps import Part
from polyc.diagnostics import CompileBudgetError, Diagnostic, PolycError, UnsupportedError
from polyc.driver.sized import Sized, size_program
from polyc.ir.expr import Read, evaluate, index_names
from polyc.ir.program import Program, RangeClause, integer_parameters
from polyc.ir.simplify import simplify
from polyc.poly.block_regions import Widened
from polyc.poly.infer import concrete_shapes
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.runtime.arrays import argument_error, has_chunks
from polyc.runtime.kernel import host_check_error

if TYPE_CHECKING:
    from polyc.api.operator import Operator

MOST_BLOCKS = 1 << 16
"""Results are cut into no more than these to keep to a limit of memory: each is a task that dask keeps track of."""


def make_blocks(
    operator: Operator,
    program: Program,
    sizes: Mapping[str, int],
    inputs: Sequence[Any],
    chunks: Any = None,
    memory: Any = None,
    dry_run: bool = False,
) -> Any:
    """The results as dask arrays, of several a tuple; `inputs` by the parameters of `program`, dask arrays among them.

    `dry_run`: a `BlockReport` instead."""
    check_program(program)
    given = dict(zip(program.parameters, inputs, strict=True))
    for number in integer_parameters(program):
        if has_chunks(given[number]):
            message = f"{number} is a number that ranges depend on, which a dask array does not tell yet"
            raise argument_error("argument-chunks", message, program.tensor(number).span, f"compute it: int({number})")
    limit = None if memory is None else read_bytes(memory)
    arrays = {n: as_chunked(a) for n, a in given.items()}
    with driver.compiling():
        for is_symbolic in (True, False):  # sizes, unless only numbers say what a block needs
            try:
                sized, values = _size(program, sizes, is_symbolic)
                planned = gather_sums(sized.program, sized.ranges, values) if is_symbolic else (sized.program, sized.ranges)
                planner = Planner(operator, *planned, values, arrays, Ledger(limit, dry_run))
                made = planner.make_all(chunks)
                break
            except NotPlanned as problem:
                if not is_symbolic:
                    message = f"blocks cannot be planned: {str(problem).splitlines()[0]}"
                    raise UnsupportedError(Diagnostic("unsupported-blocks", message, None, "x.compute() first")) from problem
    if dry_run:
        return BlockReport(tuple(planner.ledger.stages), planner.ledger.jobs, tuple(made.values()))
    results = tuple(made[r.version] for r in program.returns)
    return results if len(results) > 1 else results[0]


def make_operator(operator: Operator, program: Program) -> Operator:
    """The operator for a class of blocks of `operator`: for any sizes, and one thread."""
    from polyc.api.operator import Operator

    return Operator(FixedSource(program), operator.name, operator.options.replace(parallel=False), dynamic=True)


def _name_operators(cut: Cut) -> str:
    """By what partial results are combined, a user's monoid once."""
    monoid = cut.combined[0].monoid
    return ", ".join(c.op for c in cut.combined) if monoid is None else monoid.name


def _asked_for(chunks: Any, result: str) -> Any:
    """What `chunks` says of one result: all, or a dict by names of results."""
    return chunks.get(result) if isinstance(chunks, dict) and any(isinstance(k, str) for k in chunks) else chunks


def _size(program: Program, sizes: Mapping[str, int], is_symbolic: bool) -> tuple[Sized, dict[str, int]]:
    """The program with symbolic sizes where that is wanted and its ranges can be inferred then, else with numbers, and the
    values of all sizes."""
    try:
        sized = size_program(program, {} if is_symbolic else sizes)
        values = size_values(sized.program, sizes)
        _ = sized.ranges
    except PolycError:
        if not is_symbolic:
            raise
        return _size(program, sizes, False)
    for check in sized.ranges.checks:
        if not evaluate(check.condition, values):
            raise host_check_error(check, values)
    return sized, values


class Planner:
    """Plans of the versions of one program, and the arrays that are made by them."""

    def __init__(
        self,
        operator: Operator,
        program: Program,
        ranges: Ranges,
        values: Mapping[str, int],
        inputs: Mapping[str, Any],
        ledger: Ledger,
        memo: Memo | None = None,
    ) -> None:
        self.operator, self.values, self.inputs = operator, dict(values), dict(inputs)
        self.program, self.ranges = program, ranges
        self.ledger, self.memo = ledger, memo or Memo()
        self.shapes = self.shapes_of(ranges, values)
        self.passes: dict[str, int] = {}
        """Of totals: how many passes over inputs there are until they are known."""
        self.start: str | None = None
        self.is_part = False
        for a in self.inputs.values():
            ledger.note_chunks(a)

    @staticmethod
    def shapes_of(ranges: Ranges, values: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Of all tensors."""
        shapes = concrete_shapes(ranges, values)
        return {name: tuple(extent for _, extent in dims) for name, dims in shapes.items()}

    def part(self, part: Part, inputs: Mapping[str, Any], values: Mapping[str, int]) -> Planner:
        """One for a program that makes something of `inputs`, with additional `values` of sizes."""
        own = {name: inputs[name] for name in part.program.parameters if name in inputs}
        known = {**self.values, **values}
        made = Planner(self.operator, part.program, part.ranges, known, own, self.ledger.part(), self.memo)
        made.start, made.is_part = part.start, True
        return made

    def remember(self, key: tuple[Any, ...], make: Callable[[], Any], any_start: bool = False) -> Any:
        """What was made for the same program, sizes and chunks before.

        With `any_start` the first step of a stage does not count."""
        values = [item for item in self.values.items() if not any_start or item[0] != self.start]
        return self.memo.get(self.program, (*key, *values, *self.chunks.items()), make)

    @property
    def chunks(self) -> dict[str, Chunks]:
        return {n: a.chunks for n, a in self.inputs.items() if has_chunks(a)}

    def make_all(self, chunks: Any) -> dict[str, Any]:
        """Arrays for all results, by version; those of one shape have blocks in common."""
        run_recurrences(self)
        self.cut_reductions()
        made: dict[str, Any] = {}
        for r in self.program.returns:
            if r.version not in made:
                shape = self.shapes[r.version]
                alike = [x.version for x in self.program.returns if self.shapes[x.version] == shape and x.version not in made]
                made |= self.make(list(dict.fromkeys(alike)), _asked_for(chunks, r.name))
        return made

    def cut_reductions(self) -> None:
        """Put totals of partial results in the place of reductions over chunked axes."""
        reassociate = self.operator.options.reassociate
        follow = find_sums if reassociate else None
        while True:
            find = partial(find_cut, self.program, self.ranges, self.values, self.chunks, reassociate, follow)
            if self.remember(("cuts",), find, any_start=True) is None:
                return
            cut = self.remember(("cut",), find)
            if cut is None:
                return
            stage, share = self._describe(cut.plan, ", ".join(cut.results), _name_operators(cut))
            self.ledger.check(stage)
            self.ledger.stages.append(stage)
            self.inputs |= self._graphs(cut.plan).totals(cut, share)
            self.passes |= dict.fromkeys((t for t in cut.totals if t is not None), self._pass_of(cut.plan) + 1)
            self.program, self.ranges = cut.rest, cut.rest_ranges

    def make(self, group: Sequence[str], asked: Any) -> dict[str, Any]:
        """Arrays for versions of one shape."""
        program, shape = self.program, self.shapes[group[0]]
        base, dtype = program.tensor(group[0]).base, program.tensor(group[0]).dtype.numpy
        if 0 in shape:
            da = load_dask()
            return {v: da.zeros(shape, dtype=program.tensor(v).dtype.numpy, chunks=shape) for v in group}
        copied = [self._copied(v) for v in group]
        if asked is None and all(a is not None for a in copied):
            return {v: a.copy() for v, a in zip(group, copied, strict=True)}
        proposed, widened = self.remember(("chunks", *group), partial(self._propose, group), any_start=True)
        if isinstance(asked, dict):
            asked = tuple(asked.get(d, lengths) for d, lengths in enumerate(proposed))
        chunks = proposed if asked is None else read_chunks(asked, base, shape, dtype)
        plan, refused, reasons = self.remember(("plan", *group, chunks), partial(self._plan, group, chunks))
        if refused and asked is not None:
            raise self._refusal(base, refused, reasons)
        if refused and len(group) > 1:  # each as it may be cut
            return {v: a for version in group for v, a in self.make([version], None).items()}
        alone = {d for w in widened for d in w.axes if len(plan.chunks[d]) == 1 < shape[d]}
        axes = () if self.is_part else sorted(refused | alone)  # a stage is as long as what it follows
        whole = tuple(self._explain(base, d, [*reasons, *widened]) for d in axes)
        plan, share = self._fit(plan, group, asked is None, whole)
        return self._graphs(plan).results(plan, share)

    def _plan(self, group: Sequence[str], chunks: Chunks) -> tuple[BlockPlan, frozenset[int], tuple[Widened, ...]]:
        """The plan, by the classes of one that was made for other values of sizes where these are all that there are."""

        def find() -> tuple[BlockPlan, frozenset[int], tuple[Widened, ...]]:
            return plan_cuttable(self.program, self.ranges, self.values, group, chunks)

        plan, refused, reasons = self.memo.get(self.program, ("classes", *group, chunks), find)
        again = refit_plan(plan, self.values)
        return find() if again is None else (again, refused, reasons)

    def _propose(self, group: Sequence[str]) -> tuple[Chunks, tuple[Widened, ...]]:
        shape = self.shapes[group[0]]
        try:
            return propose_chunks(self.program, self.ranges, self.values, group, shape, self.chunks)
        except CompileBudgetError:
            return tuple((n,) for n in shape), ()

    def _copied(self, version: str) -> Any:
        """The array in chunks that a result is, element by element; None where it is none."""
        writers = [s for s in self.program.statements if s.target == version]
        if len(writers) != 1 or not isinstance(read := writers[0].value, Read):
            return None
        (s,), array = writers, self.inputs.get(read.tensor)
        places = [simplify(e - i.lower) for e, i in zip(s.subscripts, self.ranges.tensors[version], strict=True)]
        is_copy = s.reduction is None and s.has_plain_left and list(read.subscripts) == places and has_chunks(array)
        is_whole = all(isinstance(w, RangeClause) and not index_names(*w.expressions) for w in s.where)
        is_same = self.program.types[version] == self.program.types[read.tensor]
        return array if array is not None and is_copy and is_whole and is_same and array.shape == self.shapes[version] else None

    def _fit(self, plan: BlockPlan, group: Sequence[str], may_cut: bool, whole: tuple[str, ...]) -> tuple[BlockPlan, float]:
        """The plan, with chunks halved along the longest ones until each task keeps to the limit, and what its kernels store of
        their temporaries."""
        bases = ", ".join(dict.fromkeys(self.program.tensor(v).base for v in group))
        while True:
            stage, share = self._describe(plan, bases, whole=whole)
            finer = None if self.ledger.keeps(stage) or not may_cut else self._halve(plan, group)
            if finer is None:
                self.ledger.check(stage)
                self.ledger.stages.append(stage)
                return plan, share
            plan = finer

    def _halve(self, plan: BlockPlan, group: Sequence[str]) -> BlockPlan | None:
        """The plan with chunks half as long along the longest dimension that can be cut."""
        fixed: set[int] = set()
        while len(fixed) < len(plan.chunks):
            d = max((d for d in range(len(plan.chunks)) if d not in fixed), key=lambda d: max(plan.chunks[d]))
            if max(plan.chunks[d]) < 2 or 2 * len(plan.places) > MOST_BLOCKS:
                return None
            halves = tuple(h for c in plan.chunks[d] for h in (c - c // 2, c // 2) if h)
            chunks = (*plan.chunks[:d], halves, *plan.chunks[d + 1 :])
            found, refused, _ = plan_cuttable(self.program, self.ranges, self.values, group, chunks)
            if d not in refused and found.chunks != plan.chunks:
                return found
            fixed.add(d)
        return None

    def _describe(
        self, plan: BlockPlan, result: str, op: str | None = None, whole: tuple[str, ...] = ()
    ) -> tuple[Stage, float]:
        inputs = self._inputs_of(plan)
        stage, share = self.ledger.describe(plan, inputs, self._make_operator, result, op, whole)
        read = dict.fromkeys(n for blocks in plan.classes for n in blocks.regions if inputs[n] is not self.inputs[n])
        return replace(stage, again=tuple(read)), share

    def _pass_of(self, plan: BlockPlan) -> int:
        """How many passes over inputs are over before the tasks of a plan can run."""
        return max((self.passes.get(n, 0) for blocks in plan.classes for n in blocks.regions), default=0)

    def _inputs_of(self, plan: BlockPlan) -> dict[str, Any]:
        """The inputs, some of which are read again for this plan."""
        number = self._pass_of(plan)
        return {n: self.ledger.choose_reading(a, number) for n, a in self.inputs.items()}

    def _explain(self, result: str, d: int, reasons: Sequence[Widened]) -> str:
        """Why a dimension of a result is one chunk."""
        why = next((w for w in reasons if d in w.axes), None)
        message = f"{result} cannot be cut along dimension {d}"
        if why is None:
            return message
        needed = self.program.tensor(why.tensor).base
        return f"{message}: {why.reason}, so that a block needs all of dimension {why.dimension} of {needed}"

    def _refusal(self, result: str, axes: frozenset[int], reasons: Sequence[Widened]) -> UnsupportedError:
        d = min(axes)
        why = next((w for w in reasons if d in w.axes), None)
        span = next((self.program.tensor(r.version).span for r in self.program.returns if r.name == result), None)
        if why is not None:
            span = next((s.span for s in self.program.statements if s.target == why.tensor), span)
        help = f"leave dimension {d} in one chunk: chunks={{{d}: -1}}"
        return UnsupportedError(Diagnostic("unsupported-block-axis", self._explain(result, d, reasons), span, help))

    def _graphs(self, plan: BlockPlan) -> Graphs:
        identity, ledger = (repr(self.operator.options), dict(self.values)), self.ledger
        inputs = self._inputs_of(plan)
        return Graphs(self.operator.name, identity, self.program, inputs, self._make_operator, ledger.dry_run, ledger.jobs)

    def _make_operator(self, program: Program) -> Any:
        return self.memo.get(program, ("operator",), lambda: make_operator(self.operator, program))
