"""Many programs compiled at once: what the disk cache has is read, the rest is shared among worker processes.

A worker is ``python -m polyc._worker``: a new interpreter that imports polyc and nothing of the user's script, and is told
over a pipe what to compile.  It answers with what an entry of the cache holds, so that both ways give the same kernels.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from polyc import driver, recall
from polyc.cache import Entry, SourcePlaces, decode, encode
from polyc.config import Options, debugging
from polyc.ir.program import Program

logger = logging.getLogger("polyc")

FEWEST = 6
"""Programs from which on workers are worth their start (half a second, of which most is imports)."""
Progress = Callable[[int, int], None]
"""Is told how many of how many programs are done."""


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
    jobs: Sequence[Job], n_workers: int | None = None, progress: Progress | None = None
) -> list[driver.Lowered | recall.Recalled]:
    """`recall.compile_program` for every job, in order; equal jobs are compiled once by the caller's doing.

    `n_workers`: processes (None: as many as cores this process may use; 0: none, everything is compiled here).  What a worker
    cannot do is done here, so that errors are those of `recall.compile_program`."""
    results: list[Any] = [None] * len(jobs)
    missing = []
    for i, job in enumerate(jobs):
        results[i] = recall.find(job.request())
        if results[i] is None:
            missing.append(i)
    if n_workers is None:
        n_workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_workers = min(n_workers, len(missing))
    done = len(jobs) - len(missing)
    if progress is not None:
        progress(done, len(jobs))
    if n_workers > 1 and len(missing) >= FEWEST and not debugging() and sys.executable:

        def keep(i: int, entry: Entry) -> None:
            nonlocal done
            results[i] = recall.adopt(jobs[i].request(), entry)
            done += 1
            if progress is not None:
                progress(done, len(jobs))

        _share(jobs, missing, n_workers, keep)
    for i in missing:
        if results[i] is None:
            job = jobs[i]
            results[i] = recall.compile_program(
                job.program,
                sizes=job.sizes,
                strides=job.strides,
                options=job.options,
                constants=job.constants,
                typical=job.typical,
            )
            done += 1
            if progress is not None:
                progress(done, len(jobs))
    return results


def _share(jobs: Sequence[Job], missing: Sequence[int], n_workers: int, keep: Callable[[int, Entry], None]) -> None:
    """Let workers compile `missing`, the largest programs first; each takes the next one when it is done."""
    queue = sorted(missing, key=lambda i: len(jobs[i].program.statements))
    lock = threading.Lock()
    failures: list[BaseException] = []
    processes: list[subprocess.Popen[bytes]] = []

    def serve(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        try:
            if _read(process.stdout)[0].get("versions") != recall.own_versions():
                logger.info("a worker is of no use: polyc's files have changed since this process began")
                return
            while True:
                with lock:
                    if not queue or failures:
                        return
                    i = queue.pop()
                _write(process.stdin, _plain_job(jobs[i]))
                answer, payload = _read(process.stdout)
                if "header" in answer:
                    with lock:
                        keep(i, Entry(answer["header"], payload))
                else:
                    logger.info("a worker could not compile %s: %s", jobs[i].program.name, answer.get("failed"))
        except (OSError, EOFError, ValueError) as error:
            logger.info("a worker ended: %s", error)
        except BaseException as error:  # the thread must not swallow what `progress` raises
            failures.append(error)

    threads = []
    try:
        for _ in range(n_workers):
            process = _start()
            processes.append(process)
            threads.append(threading.Thread(target=serve, args=(process,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
    except OSError as error:  # no process can be started
        logger.info("no worker could be started: %s", error)
    finally:
        for process in processes:
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            process.wait()
    if failures:
        raise failures[0]


def _start() -> subprocess.Popen[bytes]:
    """A worker.  It finds polyc where this process has found it, and nothing in the current directory (``-P``)."""
    home = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": home if not known else os.pathsep.join((known, home))}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "polyc._worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def _write(stream: IO[bytes], message: Mapping[str, Any], payload: bytes = b"") -> None:
    """A message: a line of JSON that says how many bytes follow it."""
    stream.write(json.dumps({**message, "bytes": len(payload)}, separators=(",", ":")).encode() + b"\n" + payload)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("it said no more")
    message = json.loads(line)
    payload = stream.read(message["bytes"])
    if len(payload) != message["bytes"]:
        raise EOFError("it stopped in the middle of an answer")
    return message, payload


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


def work(incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    """What a worker does: compile what it is told until its input ends."""
    _write(outgoing, {"versions": recall.own_versions()})
    while True:
        try:
            plain, _ = _read(incoming)
        except EOFError:
            return
        try:
            entry = recall.make_entry(_restore_job(plain).request())
        except Exception as error:  # whoever asked compiles it again, and raises it
            _write(outgoing, {"failed": f"{type(error).__name__}: {error}"})
        else:
            _write(outgoing, {"header": entry.header}, entry.payload)
