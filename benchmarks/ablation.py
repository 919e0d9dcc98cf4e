"""What ablation knows of the passes: which change a workload, whether its LLVM IR is another without them, what they bring."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import coordinator, sides
from benchmarks.statistics import geometric_mean
from benchmarks.worker import largest_error
from benchmarks.workload import Workload, as_tuple
from benchmarks.workloads import WORKLOADS

LIMIT = 300
"""Seconds of one lowering."""

Interval = tuple[float, float, float]
"""Median and 95 % interval of the time without a pass over the time with it: above 1 the pass makes the kernel faster."""


@dataclass(slots=True)
class Entry:
    """What is known of one workload."""

    digest: str
    """Of its LLVM IR with all passes."""
    changed: dict[str, float]
    """The optional passes that changed something, with their CPU seconds."""
    same: list[str] = field(default_factory=list)
    """Those of them without which the LLVM IR is the same."""
    differs: dict[str, dict[str, Interval]] = field(default_factory=dict)
    """Those without which it is another, and what they bring, by number of threads, where that was measured."""
    fails: dict[str, str] = field(default_factory=dict)
    """Those without which the workload cannot be lowered, and why."""

    def lacks(self, passes: frozenset[str]) -> list[str]:
        """Those of `passes` that the workload was not lowered without yet."""
        return [p for p in self.changed if p in passes and p not in {*self.same, *self.differs, *self.fails}]


class Record:
    """A file that keeps entries by setting (target, known sizes or any) and workload; without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Entry]] = {}
        if path is not None and path.exists():
            read = json.loads(path.read_text())
            self.entries = {key: {n: Entry(**e) for n, e in own.items()} for key, own in read.items()}

    def save(self) -> None:
        if self.path is not None:
            text = {key: {n: asdict(e) for n, e in own.items()} for key, own in self.entries.items()}
            self.path.write_text(json.dumps(text) + "\n")


class _TooLong(BaseException):
    """Not an Exception: a fault on one rung of the ladder of schedules would only lead to the next."""


def lower(workload: Workload, options: Mapping[str, Any]) -> str:
    """A digest of its LLVM IR; no input is made."""

    def stop(*_: Any) -> None:
        raise _TooLong

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        given = workload.signature()
        operator = sides.make_operator(workload, **options)
        lowered = operator.lower(*given.values()) if workload.notation == "einsum" else operator.lower(**given)
        return hashlib.sha256(lowered.llvm_ir.encode()).hexdigest()[:16]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def compare(name: str, options: Mapping[str, Any], passes: frozenset[str], entry: Entry | None) -> Entry:
    """`entry`, or a new one, with what there is to know of `passes`."""
    from polyc.passes import recording

    workload = WORKLOADS[name]
    if entry is None:
        with recording() as sessions:
            digest = lower(workload, options)
        changed: dict[str, float] = {}
        for ran in (r for session in sessions for r in session.ran if r.has_changed and not r.step.required):
            changed[ran.step.name] = round(changed.get(ran.step.name, 0.0) + ran.seconds, 4)
        sessions.clear()
        entry = Entry(digest, changed)
    for without in entry.lacks(passes):
        try:
            if lower(workload, {**options, "disable": (without,)}) == entry.digest:
                entry.same.append(without)
            else:
                entry.differs[without] = {}
        except _TooLong:
            entry.fails[without] = f"not lowered in {LIMIT} s"
        except Exception as error:
            entry.fails[without] = f"{type(error).__name__}: {error}".splitlines()[0]
    return entry


def _compare(job: tuple[str, Mapping[str, Any], frozenset[str], Entry | None]) -> Entry | str:
    """`compare` in a process of its own, which gives all memory back; what went wrong as text."""
    try:
        return compare(*job)
    except _TooLong:
        return f"not lowered in {LIMIT} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def find_differences(
    names: list[str], options: Mapping[str, Any], passes: frozenset[str], known: dict[str, Entry], tell: Callable[[str], None]
) -> Iterator[str]:
    """Complete `known`; each workload as soon as it is done."""
    jobs = [n for n in names if n not in known or known[n].lacks(passes)]
    if not jobs:
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "polyc.driver.ladder", "polyc.codegen.emission.llvm"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        work = pool.imap(_compare, [(n, options, passes, known.get(n)) for n in jobs])
        for name, found in zip(jobs, work, strict=True):
            if isinstance(found, str):
                tell(f"{name} is left out: {found}")
            else:
                known[name] = found
            yield name


def modules_of(step: Any) -> set[str]:
    """The modules that the functions of a pass stand in: its own, or those that a few lines in the pipeline call."""
    found, seen, waiting = set(), set(), [step.run]
    while waiting:
        function = waiting.pop()
        if isinstance(function, partial):  # a driver of rules, which many passes share
            waiting += list(filter(callable, function.args)) or [function.func]
            continue
        module, code = getattr(function, "__module__", None) or "", getattr(function, "__code__", None)
        if code is None or function in seen or not module.startswith(("polyc.scheduler", "polyc.codegen")):
            continue
        seen.add(function)
        if not module.endswith(".pipeline"):
            found.add(module)
            continue
        waiting += [function.__globals__.get(name) for name in code.co_names]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty one
                waiting.append(cell.cell_contents)
    return found


def lines_of(step: Any) -> int:
    """Lines of these modules."""
    files = (sys.modules[m].__file__ for m in modules_of(step))
    return sum(len(Path(f).read_text().splitlines()) for f in files if f is not None)


def interval(ratios: list[float]) -> Interval:
    """The median, and between which two of the ratios it lies with 95 % confidence (as a sign test says)."""
    ordered, n = sorted(ratios), len(ratios)
    outside, tail = 0, 0.5**n
    while (following := tail + comb(n, outside + 1) * 0.5**n) <= 0.025:
        tail, outside = following, outside + 1
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return middle, ordered[outside], ordered[n - 1 - outside]


@dataclass(frozen=True, slots=True)
class Worth:
    """One pass in one setting."""

    changed: int
    """Workloads in which it changed something."""
    compared: int
    """Those of them that were lowered without it."""
    differs: int
    """Those whose LLVM IR is another then."""
    fails: int
    """Those that cannot be lowered without it."""
    seconds: float
    """CPU time that it takes in the workloads that it changes."""
    measured: int = 0
    best: tuple[float, str] | None = None
    worst: tuple[float, str] | None = None
    mean: float | None = None
    """Geometric mean over what was measured."""


def assess(name: str, entries: Mapping[str, Entry]) -> Worth:
    """What a pass is worth by `entries`; a workload on several numbers of threads counts several times."""
    known = [(n, e) for n, e in entries.items() if name in e.changed]
    found = [
        (ratio[0], n if threads == "1" else f"{n}, {threads} threads")
        for n, e in known
        for threads, ratio in e.differs.get(name, {}).items()
    ]
    worth = (
        len(known),
        sum(name not in e.lacks(frozenset({name})) for _, e in known),
        sum(name in e.differs for _, e in known),
        sum(name in e.fails for _, e in known),
        round(sum(e.changed[name] for _, e in known), 2),
    )
    return Worth(*worth, len(found), max(found), min(found), geometric_mean(r for r, _ in found)) if found else Worth(*worth)


def errors(name: str, variants: list[dict[str, Any]], threads: list[int]) -> list[list[float]]:
    """For each variant of the options, by number of threads, the `largest_error` of the workload's results."""
    workload = WORKLOADS[name]
    exact, inputs = list(coordinator.exact_results(workload)), workload.inputs()
    found: list[list[float]] = [[] for _ in variants]
    for own, variant in zip(found, variants, strict=True):
        for n in threads:
            run = sides.build("polyc", workload, inputs, None, n, variant)
            own.append(largest_error([np.asarray(r) for r in as_tuple(run(1))], exact))
    return found


def find_wrong(
    wanted: Mapping[str, list[str]], options: Mapping[str, Any], threads: list[int]
) -> Iterator[tuple[str, list[str]]]:
    """By workload, one line for each of `wanted`'s passes without which a result misses the workload's tolerance.

    Each workload runs in a process of its own, as wrong code may end it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "polyc.driver.ladder", "polyc.codegen.emission.llvm"])
    for name, passes in wanted.items():
        variants = [{**options, "disable": (p,)} for p in passes]
        with ProcessPoolExecutor(1, context) as pool:
            try:
                by_pass = pool.submit(errors, name, variants, threads).result()
            except BrokenProcessPool:
                yield name, [f"{name} without one of {', '.join(passes)}: the process ended"]
            except Exception as error:
                yield name, [f"{name}: {type(error).__name__}: {error}".splitlines()[0]]
            else:
                pairs = zip(passes, by_pass, strict=True)
                bad = [(p, max(own)) for p, own in pairs if not max(own) <= WORKLOADS[name].tolerance]
                yield name, [f"{name} without {p}: an error of {worst:.1e}" for p, worst in bad]
