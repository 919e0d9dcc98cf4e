"""Program → LoopNest for one set of sizes, stage by stage: read it top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.config import Options
from polyc.diagnostics import RangeError, Remark, UnsupportedError
from polyc.driver.ladder import climb_down
from polyc.driver.loading import select_target
from polyc.driver.lowered import Lowered
from polyc.driver.signature import make_signature, memory_strides
from polyc.ir.complex_pairs import split_complex
from polyc.ir.expr import int_const
from polyc.ir.program import Program, specialize_sizes
from polyc.ir.signature import Strides
from polyc.ir.simplify import define_sizes
from polyc.ir.storage_types import widen_arithmetic
from polyc.ir.verify import verify_program
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import assume_sizes
from polyc.poly.scop import extract_scop
from polyc.scheduler.constants import split_constants
from polyc.scheduler.preparation import collect_preparations
from polyc.scheduler.rewriting.dead_instances import drop_dead_instances
from polyc.scheduler.rewriting.fold_sizes import find_folds
from polyc.scheduler.rewriting.rewrite_program import rewrite_program
from polyc.scheduler.size_classes import find_size_classes
from polyc.target import Target


def run_stages(
    program: Program,
    sizes: dict[str, int],
    strides: Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    target: Target | None,
    constants: frozenset[str],
    typical: Mapping[str, int],
    is_version: bool = False,
    as_written: bool = False,
) -> Lowered:
    """`as_written`: without rewritings that only speed asks for."""
    verify_program(program)
    target = target or select_target(options)
    sized = define_sizes(specialize_sizes(program, {name: int_const(value) for name, value in sizes.items()}))
    given, given_strides = sized, strides
    sized = widen_arithmetic(split_complex(sized))
    if strides is not None:
        strides = memory_strides(given, strides)
    generic = (lambda: widen_arithmetic(split_complex(define_sizes(program)))) if sizes else None
    ranges = assume_sizes(infer_ranges(sized, generic), sized.defined_sizes, typical)
    main, main_ranges, prepared = split_constants(sized, ranges, constants)
    made = main.parameters[len(sized.parameters) :]
    if strides is not None:  # what is prepared is laid out later
        n = len(sized.parameters)
        main_strides: Strides | None = (*strides[:n], *(None for _ in made), *strides[n:])
    else:
        main_strides = None
    known = constants | set(made)
    rewritten, new_ranges, groups, remarks = rewrite_program(
        main, main_ranges, main_strides, options, target, known, as_written
    )
    # What a rewriting makes of constants alone leaves the program, too.
    rewritten, new_ranges, again = split_constants(rewritten, new_ranges, known)
    known |= {p.statement.target for p in again}
    taken = {p.statement.target: p.statement.name for p in (*prepared, *again)}
    remarks += [Remark("passed", "bind", f"{tensor} is computed once", name) for tensor, name in taken.items()]
    scop = extract_scop(rewritten, new_ranges)
    live, live_ranges, found = drop_dead_instances(scop)
    if found:
        scop = extract_scop(live, live_ranges, scop)
        remarks += found
    signature = make_signature(sized, given.types, ranges, scop, strides)
    classes = None
    if typical and not is_version and options.tile and options.vectorize:
        classes = find_size_classes(scop, target, known)
        if classes is not None and classes.typical[0] != typical:
            # Another one is best for most sizes.
            lowered = run_stages(
                program, sizes, given_strides, aliases, options, target, constants, classes.typical[0], is_version=True
            )
            lowered.size_classes = classes
            return lowered
    try:
        lowered = climb_down(program, signature, scop, ranges, target, options, remarks, aliases, groups, known)
    except (RangeError, UnsupportedError) as error:
        (reason, *_) = error.diagnostics
        if as_written or reason.code not in ("range-circular", "unsupported-recurrence"):
            raise
        # A rewriting may have joined what a recurrence needs apart; if not, the error speaks of what the user wrote.
        lowered = run_stages(
            program, sizes, given_strides, aliases, options, target, constants, typical, is_version, as_written=True
        )
        lowered.remarks += (Remark("missed", "rewrite", "scheduled as written: rewritten, no order of loops was found"),)
        return lowered
    if not known:
        lowered.nest = replace(lowered.nest, folds=find_folds(sized, ranges, lowered.signature, lowered.nest))
    lowered.prepared = (*again, *lowered.prepared)
    if constants:
        lowered.preparations = collect_preparations(lowered.signature, sized, prepared, lowered.scop.program, lowered.prepared)
    lowered.fixed_sizes = sizes
    lowered.size_classes = classes
    return lowered
