"""Clusters of what was lowered, and their code: equal programs are compiled once, shapes that change for any sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyc import jobs
from polyc.api.dynamic import known_strides
from polyc.cache import identify_program
from polyc.config import Options
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.clusters import Cluster, base_name, build_cluster
from polyc.frontends.onnx.flatten import flatten_dimensions
from polyc.frontends.onnx.lowering import Lowered
from polyc.frontends.onnx.partition import partition
from polyc.ir.expr import reads
from polyc.ir.program import Program
from polyc.ir.traced import has_traced, is_traced
from polyc.onnx.positions import share_positions
from polyc.onnx.shapes import Choice, Shapes, shape_of
from polyc.runtime.arrays import contiguous_strides


def make_clusters(lowered: Lowered, wanted: Sequence[str]) -> list[Cluster]:
    """The clusters of what was lowered, in an order in which they can run; those that nobody needs are left out."""
    fragments = lowered.fragments
    maker = {t.name: i for i, f in enumerate(fragments) for t in f.tensors}
    read = [{r.tensor for s in f.statements for e in (s.value, *s.subscripts) for r in reads(e)} for f in fragments]
    for f, names in zip(fragments, read, strict=True):
        names |= {r.tensor for s in f.statements if s.reduction is not None for r in reads(s.reduction.init)}
    read = [{base_name(n, lowered.values) for n in names} for names in read]
    producers = [sorted({maker[n] for n in names if n in maker and maker[n] != i}) for i, names in enumerate(read)]
    ends = {v.name if v.source is None else v.source.name for n in wanted if (v := lowered.values.get(n)) is not None}
    alive = _alive(producers, [maker[n] for n in ends if n in maker])
    position = {old: new for new, old in enumerate(alive)}
    kept = [fragments[i] for i in alive]
    groups = partition(kept, [[position[p] for p in producers[i]] for i in alive])
    group_of = {alive[k]: g for g, group in enumerate(groups) for k in group}
    needed = set(ends)
    for i in alive:
        if i in group_of:
            needed |= {n for n in read[i] if n in maker and group_of.get(maker[n]) != group_of[i]}
    known = {n for n, a in lowered.constants.items() if not has_traced(a)}
    clusters = [build_cluster([kept[k] for k in g], lowered.values, needed, known) for g in groups]
    return [replace(c, program=flatten_dimensions(c.program, c.constants)) for c in clusters]


def _alive(producers: Sequence[Sequence[int]], ends: Sequence[int]) -> list[int]:
    """Fragments that the ends depend on, ascending."""
    seen: set[int] = set()
    stack = list(ends)
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack += producers[i]
    return sorted(seen)


def compile_clusters(
    clusters: Sequence[Cluster],
    options: Options,
    n_workers: int | None,
    progress: jobs.Progress | None,
    shapes: Shapes,
) -> tuple[list[Choice], list[Any]]:
    """What is compiled for each cluster, and its code; equal programs with equal constants are compiled once."""
    choices = share_positions([shapes.choose(c) for c in clusters])
    while True:
        distinct: dict[Any, int] = {}
        todo: list[jobs.Job] = []
        numbers = []
        for choice in choices:
            # The text tells 0.0 from -0.0, which are equal.
            key = (identify_program(choice.program).text, choice.constants, tuple(choice.typical.items()))
            if key not in distinct:
                distinct[key] = len(todo)
                todo.append(_job(choice, options))
            numbers.append(distinct[key])
        try:
            compiled = jobs.compile_all(todo, n_workers, progress)
        except PolycError:
            if not any(choice.is_general for choice in choices):
                raise
            if any(is_traced(n) for choice in choices for n in choice.sizes.values()):
                raise  # there is no code of their own for shapes that are traced
            choices = _replace_failing(clusters, choices, options, shapes)
        else:
            found = [compiled[n] for n in numbers]
            free = [_without_varying(choice, code) for choice, code in zip(choices, found, strict=True)]
            if all(a is b for a, b in zip(free, choices, strict=True)):
                return choices, found
            choices = free


def _without_varying(choice: Choice, code: Any) -> Choice:
    """`choice` without the constants of which its code would want something made for each size anew: they are read as they
    are."""
    varying = {p for program in code.preparations if program.sizes for p in program.parameters}
    if not varying:
        return choice
    kept = tuple(c for c in choice.constants if c not in varying)
    return replace(choice, constants=kept if len(kept) < len(choice.constants) else ())


def _job(choice: Choice, options: Options) -> jobs.Job:
    return jobs.Job(choice.program, {}, _strides(choice), options, choice.constants, choice.typical)


def _replace_failing(clusters: Sequence[Cluster], choices: Sequence[Choice], options: Options, shapes: Shapes) -> list[Choice]:
    """The choices without those general programs that cannot be compiled; where all can, another program is at fault, and none
    is general any more."""
    failed: dict[Program, PolycError] = {}
    for choice in {c.program: c for c in choices if c.is_general}.values():
        try:
            jobs.compile_all([_job(choice, options)], 0)
        except PolycError as error:
            failed[choice.program] = error
    result = []
    for cluster, choice in zip(clusters, choices, strict=True):
        problem = failed.get(choice.program)
        if problem is not None:
            result.append(shapes.refuse(cluster, problem))
        else:
            result.append(choice if failed else Choice(cluster.program, cluster.constants))
    return result


def _strides(choice: Choice) -> Any:
    """Contiguous ones, for parameters and results; None where they depend on sizes."""
    program = choice.program
    symbolic = frozenset(choice.sizes)
    found = []
    for n in (*program.parameters, *(r.version for r in program.returns)):
        t = program.tensor(n)
        strides = contiguous_strides(shape_of(program, n, choice.sizes), t.dtype.itemsize)
        found.append(known_strides(strides, t.shape or (), symbolic))
    return tuple(found)
