"""Many programs compiled at once: what the disk cache has is read, the rest is shared among worker processes.

A worker (`polyc.workers`) is told over a pipe what to compile.  It answers with what an entry of the cache holds, so that both
ways give the same kernels.

A process that lets workers compile never loads the compiler (isl, LLVM), which is 100 MB of memory and half a second.  Workers
stay for a while when their work is done, as a model with inputs of other shapes often has more of it soon.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from typing import IO, Any, Literal

from polyc import driver, recall, workers
from polyc.cache import Entry, SourcePlaces, decode, encode
from polyc.config import Options, debugging
from polyc.crash import name_crashes
from polyc.ir.program import Program
from polyc.log import logger
from polyc.records import dataclass
from polyc.runtime.threads import count_cores

FEWEST = 6
"""Programs from which on workers are worth their start (half a second, of which most is imports) in a process that has loaded
the compiler already."""
Progress = Callable[[int, int], None]
"""Is told how many of how many programs are done."""


PATIENCE = 2.0
"""Seconds that a compilation may take before it says how far it is."""


class LoggedProgress:
    """``compiled 12 of 40 programs`` in the log, every few seconds of what takes longer than `PATIENCE`."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if total > 1 and now - self._said > PATIENCE:
            self._said = now
            logger.info("compiled %d of %d programs", done, total)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A program to compile; the fields are the arguments of `recall.compile_program`."""

    program: Program
    sizes: Mapping[str, int]
    strides: driver.Strides | None
    options: Options
    constants: Collection[str] = ()
    typical: Mapping[str, int] = field(default_factory=dict)

    def request(self) -> recall.Request:
        return recall.Request(self.program, self.sizes, self.strides, (), self.options, tuple(self.constants), self.typical)


def compile_all(
    jobs: Sequence[Job], n_workers: int | None = None, progress: Progress | None = None, *, only_workers: bool = False
) -> list[driver.Lowered | recall.Recalled]:
    """`recall.compile_program` for every job, in order; equal jobs are compiled once by the caller's doing.

    `n_workers`: processes (None: as many as cores this process may use; 0: none, everything is compiled here).  What a worker
    cannot do is done here, so that errors are those of `recall.compile_program`; with `only_workers` it is left out: None."""
    if progress is None:
        progress = LoggedProgress()
    if n_workers != 0:
        _learn_from_worker()
    results: list[Any] = [None] * len(jobs)
    missing = []
    for i, job in enumerate(jobs):
        results[i] = recall.find(job.request())
        if results[i] is None:
            missing.append(i)
    if n_workers is None:
        n_workers = count_cores()
    n_workers = min(n_workers, len(missing))
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    if n_workers and (only_workers or len(missing) >= FEWEST or not _has_compiler()) and _may_start():

        def keep(i: int, entry: Entry) -> None:
            nonlocal done
            results[i] = recall.adopt(jobs[i].request(), entry)
            done += 1
            progress(done, len(jobs))

        _share(jobs, missing, n_workers, keep)
    for i in () if only_workers else missing:
        if results[i] is None:
            job = jobs[i]
            with name_crashes(f"compiling {job.program.name}"):
                results[i] = recall.compile_program(
                    job.program,
                    sizes=job.sizes,
                    strides=job.strides,
                    options=job.options,
                    constants=job.constants,
                    typical=job.typical,
                )
            done += 1
            progress(done, len(jobs))
    return results


class Errand:
    """A program that a worker compiles while this process goes on: `prepare` says what, `keep` gets it; both run in a thread of
    their own, which holds the lock of compilations meanwhile."""

    def __init__(self, prepare: Callable[[], Job], keep: Callable[[driver.Lowered | recall.Recalled], None]) -> None:
        self.state: Literal["running", "done", "failed"] = "running"
        self._prepare, self._keep = prepare, keep
        self.thread = threading.Thread(target=self._run, name=ERRAND, daemon=True)
        _errands.add(self)
        try:
            self.thread.start()
        except RuntimeError as error:  # no more threads
            logger.info("no thread for an errand: %s", error)
            self.state = "failed"
            _errands.discard(self)

    def _run(self) -> None:
        try:
            with driver.compiling():
                job = self._prepare()
                _plain_job(job)  # what is imported for it is imported here: a fork waits for whoever holds this lock
                _learns_nothing()
                recall.own_versions()
            (compiled,) = compile_all([job], 1, only_workers=True)
            if compiled is not None:
                with driver.compiling():
                    self._keep(compiled)
                self.state = "done"
        except Exception as error:  # whoever wants it compiles it, and raises it
            logger.info("an errand failed: %s", error)
        finally:
            self.state = "done" if self.state == "done" else "failed"
            _errands.discard(self)


def may_run_errands() -> bool:
    """Whether a worker can compile beside this process: there is a core for it."""
    return _may_start() and not workers.has_ended() and count_cores() > 1


def has_many_errands() -> bool:
    """Whether there is one for each core that this process leaves free."""
    return len(_errands) >= count_cores() - 1


_errands: set[Errand] = set()
ERRAND = "polyc errand"
"""Name of their threads."""
LAST_SECONDS = 5.0
"""How long the end of the process waits for threads that are in the middle of something (isl, imports)."""


def _end_errands() -> None:
    workers.end_all(for_good=True)
    for errand in list(_errands):
        errand.thread.join(LAST_SECONDS)


def _forget_errands() -> None:
    """In a child after a fork: they are its parent's."""
    for errand in _errands:
        errand.state = "failed"
    _errands.clear()


atexit.register(_end_errands)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_errands)


def _has_compiler() -> bool:
    return "islpy" in sys.modules


def _may_start() -> bool:
    return not debugging() and bool(sys.executable)


def _learns_nothing() -> bool:
    return recall.knows_host() and all(map(recall.knows_glue, recall.GLUE))


def _learn_from_worker() -> None:
    """What LLVM says of this machine, and the code that belongs to no program, where nobody has asked for them before: to
    hear it from LLVM, LLVM would have to be loaded."""
    if _learns_nothing():
        return
    if "llvmlite" in sys.modules or not _may_start():
        return
    try:
        with workers.lend() as worker:
            with driver.compiling():
                recall.adopt_host(*worker.facts)
            for kind in recall.GLUE:
                if not recall.knows_glue(kind):
                    answer, code = worker.ask({"glue": kind})
                    if "failed" not in answer:
                        with driver.compiling():
                            recall.adopt_glue(kind, code)
    except (OSError, EOFError, ValueError, KeyError) as error:
        logger.info("a worker ended: %s", error)


def _share(jobs: Sequence[Job], missing: Sequence[int], n_workers: int, keep: Callable[[int, Entry], None]) -> None:
    """Let workers compile `missing`, the largest programs first; each takes the next one when it is done."""
    queue = sorted(missing, key=lambda i: len(jobs[i].program.statements))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            with workers.lend() as worker:
                while True:
                    with lock:
                        if not queue or failures:
                            return
                        i = queue.pop()
                    answer, payload = worker.ask(_plain_job(jobs[i]))
                    if "header" in answer:
                        with lock:
                            keep(i, Entry(answer["header"], payload))
                    else:
                        logger.info("a worker could not compile %s: %s", jobs[i].program.name, answer.get("failed"))
        except (OSError, EOFError, ValueError) as error:
            logger.info("a worker ended, or could not be started: %s", error)
        except BaseException as error:  # the thread must not swallow what `progress` raises
            failures.append(error)

    try:
        workers.have(n_workers, {"target": jobs[missing[0]].options.target})
    except (OSError, EOFError, ValueError) as error:  # each is started by itself then
        logger.info("a worker could not be copied: %s", error)
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(n_workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # the user does not want to wait
        with lock:
            queue.clear()
        workers.end_all()
        raise
    if failures:
        raise failures[0]


def _plain_job(job: Job) -> dict[str, Any]:
    places = SourcePlaces()
    strides = None if job.strides is None else [None if s is None else list(s) for s in job.strides]
    return {
        "program": encode(job.program, places),
        "sources": places.plain_sources(),
        "sizes": dict(job.sizes),
        "strides": strides,
        "options": {f.name: getattr(job.options, f.name) for f in fields(Options)},
        "constants": sorted(job.constants),
        "typical": dict(job.typical),
    }


def _restore_job(plain: Mapping[str, Any]) -> Job:
    program = decode(plain["program"], SourcePlaces(plain["sources"]))
    strides = plain["strides"]
    if strides is not None:
        strides = tuple(None if s is None else tuple(s) for s in strides)
    return Job(program, plain["sizes"], strides, Options(**plain["options"]), tuple(plain["constants"]), plain["typical"])


def work(incoming: IO[bytes], outgoing: IO[bytes], control: socket.socket | None = None) -> None:
    """What a worker does: compile what it is told until its input ends, or nothing has come for `workers.IDLE_SECONDS`."""
    workers.write(outgoing, {"versions": recall.own_versions(), "facts": recall.plain_host()})
    while (plain := workers.read_in_time(incoming)) is not None:
        try:
            if "glue" in plain:
                entry = Entry({}, recall.glue_code(plain["glue"]))
            elif "copies" in plain:
                if workers.become_copy(partial(_load_compiler, plain["target"]), control, incoming, outgoing):
                    control = None
                    continue  # with the first message that is for the copy
                entry = Entry({})
            else:
                if not gc.isenabled():
                    _load_compiler(plain["options"]["target"])
                entry = recall.make_entry(_restore_job(plain).request())
        except Exception as error:  # whoever asked compiles it again, and raises it
            workers.write(outgoing, {"failed": f"{type(error).__name__}: {error}"})
        else:
            workers.write(outgoing, {"header": entry.header}, entry.payload)


def _load_compiler(target: str) -> None:
    """What several workers would each import, and test.  It stays, so no search for garbage looks at it."""
    driver.load_compiler()
    gc.freeze()
    recall.check_code_generator(driver.select_target(Options(target=target)))
    gc.enable()  # loaded and tested
