"""Programs whose blocks are planned: which can be, and what single results of them need."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Diagnostic, Span, UnsupportedError
from polyc.ir.program import Program, RangeClause, all_reads
from polyc.ir.read_sites import is_data_dependent
from polyc.records import replace


def check_program(program: Program) -> None:
    """Raise `UnsupportedError` for a program whose blocks cannot be planned."""
    for r in program.returns:
        if r.initial is not None:
            raise _unsupported(f"{r.name} is accumulated into what the caller holds", program.tensor(r.version).span)
    if program.compressed:
        raise _unsupported("sparse and ragged arguments are no dask arrays", program.tensor(program.parameters[0]).span)
    for s in program.statements:
        for clause in s.where:
            if isinstance(clause, RangeClause) and any(is_data_dependent(e) for e in clause.expressions):
                raise _unsupported(f"the range of {clause.index} depends on data", clause.span)


def _unsupported(reason: str, span: Span | None) -> UnsupportedError:
    help = "compute the arrays first: x.compute()"
    return UnsupportedError(Diagnostic("unsupported-blocks", f"blocks cannot be planned: {reason}", span, help))


def needed_tensors(program: Program, results: Sequence[str]) -> set[str]:
    """The results, and all that they are computed from."""
    writers = program.writers()
    needed, waiting = set(results), list(results)
    while waiting:
        for s in writers.get(waiting.pop(), ()):
            fresh = {r.tensor for r in all_reads(s)} - needed
            needed |= fresh
            waiting += fresh
    return needed


def keep_results(program: Program, results: Sequence[str]) -> Program:
    """The program of some results (versions) alone."""
    needed = needed_tensors(program, results)
    tensors = [t for t in program.tensors if t.name in needed or t.name in program.parameters]
    return replace(
        program,
        tensors=tuple(replace(t, role="temporary") if t.role == "output" and t.name not in results else t for t in tensors),
        returns=tuple(r for r in program.returns if r.version in results),
        statements=tuple(s for s in program.statements if s.target in needed),
        rules=(),
    )
