"""Processes that compile for this one (`polyc.jobs`): how they are started, copied, lent, spoken to and ended.

A worker is ``python -m polyc._worker``: a new interpreter that imports polyc and nothing of the user's script.  Where several
are wanted, one is started, imports the compiler, and is forked: half of the CPU time of a short compilation is imports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from polyc import recall

IDLE_SECONDS = 10.0
"""How long a worker waits for more to do."""
CAN_COPY = hasattr(os, "fork") and hasattr(socket, "send_fds")


@dataclass(slots=True, eq=False)
class Worker:
    """A process that compiles what it is told, and what it said of itself when it began."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    surroundings: Any
    """Environment and cores, which decide what code is made: another worker is started where they have changed."""
    process: subprocess.Popen[bytes] | None
    """None for a copy, which is in the process group of the worker that it is a copy of."""
    control: socket.socket | None = None
    """What a copy's ends of its pipes are sent through."""
    versions: str = ""
    facts: tuple[Any, ...] = ()
    last_used: float = 0.0

    def ask(self, message: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer to a message.  Raises OSError, EOFError or ValueError where none comes."""
        write(self.stdin, message)
        return read(self.stdout)

    def is_of_use(self) -> bool:
        lasts = time.monotonic() - self.last_used < IDLE_SECONDS / 2
        is_alive = self.process is None or self.process.poll() is None
        return lasts and is_alive and self.surroundings == _surroundings()

    def end(self) -> None:
        """A copy ends when its pipes do."""
        if self.process is not None:
            self.process.kill()
        for stream in (self.stdin, self.stdout, self.control):
            if stream is not None:
                with suppress(OSError):  # what was not sent is not missed
                    stream.close()
        if self.process is not None:
            self.process.wait()


_idle: list[Worker] = []
_busy: set[Worker] = set()
_of_parent: list[object] = []
"""Workers of the process that this one was forked from; nothing is done with them."""
_end = threading.Event()
"""Set when the process ends: no worker is started any more."""


def has_ended() -> bool:
    """Whether no worker is started any more, as the process ends."""
    return _end.is_set()


def _surroundings() -> Any:
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return dict(os.environ), cores


@contextmanager
def lend() -> Iterator[Worker]:
    """A worker for a while: one that waits for work, or a new one.  Raises OSError, EOFError or ValueError where there is none;
    whatever is raised inside ends it."""
    worker = None
    while worker is None and _idle:
        try:
            worker = _idle.pop()
        except IndexError:  # another thread took the last one
            break
        if not worker.is_of_use():
            worker.end()
            worker = None
    if worker is None:
        if _end.is_set():
            raise OSError("this process ends")
        worker = start()
    _busy.add(worker)
    is_sound = False
    try:
        if not worker.versions:
            hello, _ = read(worker.stdout)
            if hello.get("versions") != recall.own_versions():
                raise ValueError("polyc's files have changed since this process began")
            worker.versions, worker.facts = hello["versions"], tuple(hello["facts"])
        yield worker
        is_sound = True
    finally:
        _busy.discard(worker)
        if is_sound:
            worker.last_used = time.monotonic()
            _idle.append(worker)
        else:
            worker.end()


def have(count: int, about: Mapping[str, Any]) -> None:
    """See that `count` workers wait for work: one is started where there is none, the rest are copies of it.

    `about`: what the first one is to be told before it is copied.  Raises OSError, EOFError or ValueError."""
    missing = count - sum(w.is_of_use() for w in list(_idle))
    if not CAN_COPY or missing < 1 or count < 2:
        return
    with lend() as first:
        if first.control is None:
            return
        for _ in range(count - max(1, count - missing)):
            _idle.append(_copy(first, about))


def _copy(first: Worker, about: Mapping[str, Any]) -> Worker:
    assert first.control is not None
    (own_in, their_out), (their_in, own_out) = os.pipe(), os.pipe()
    try:
        write(first.stdin, {**about, "copies": True})
        socket.send_fds(first.control, [b"."], [their_in, their_out])
        answer, _ = read(first.stdout)
        if "failed" in answer:
            raise ValueError(answer["failed"])
    except BaseException:
        os.close(own_in)
        os.close(own_out)
        raise
    finally:
        os.close(their_in)
        os.close(their_out)
    stdin, stdout = os.fdopen(own_out, "wb"), os.fdopen(own_in, "rb")
    return Worker(stdin, stdout, first.surroundings, None, None, first.versions, first.facts, time.monotonic())


def become_copy(prepare: Callable[[], None], control: socket.socket | None, incoming: IO[bytes], outgoing: IO[bytes]) -> bool:
    """In a worker that is told to: `prepare`, then fork.  Whether this is the copy, whose messages come and go through the
    pipes that `control` has brought."""
    assert control is not None, "copies are not asked to make copies"
    _, pipes, *_ = socket.recv_fds(control, 1, 2)
    try:
        prepare()
        is_copy = os.fork() == 0
        if is_copy:
            for own, their in zip((incoming, outgoing), pipes, strict=True):
                os.dup2(their, own.fileno())
            control.close()
    finally:
        for their in pipes:
            os.close(their)
    return is_copy


def end_all(for_good: bool = False) -> None:
    """End all worker processes of this process, whatever they do; `for_good`: and start none any more."""
    if for_good:
        _end.set()
    for worker in (*_busy, *_idle):
        if worker.process is not None and worker.process.poll() is None:
            with suppress(OSError):
                os.killpg(worker.process.pid, signal.SIGKILL)  # whoever waits for it hears that it ended, and cleans up
    while _idle:
        _idle.pop().end()


def _forget_workers() -> None:
    """In a child after a fork: they are its parent's."""
    _of_parent.extend((*_idle, *_busy))
    _idle.clear()
    _busy.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def start() -> Worker:
    """A worker.  It finds polyc where this process has found it, and nothing in the current directory (``-P``).  Ctrl-C at the
    terminal is for this process alone, which ends its workers; theirs would be tracebacks of what they do just then."""
    home = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    path = home if not known else os.pathsep.join((known, home))
    # NumPy's threads would wait for work for a while, and there is none.
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command, control, theirs = [sys.executable, "-P", "-m", "polyc._worker"], None, None
    if CAN_COPY:
        control, theirs = socket.socketpair()
        command.append(str(theirs.fileno()))
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,
            pass_fds=() if theirs is None else (theirs.fileno(),),
        )
    finally:
        if theirs is not None:
            theirs.close()
    assert process.stdin is not None and process.stdout is not None
    return Worker(process.stdin, process.stdout, _surroundings(), process, control)


def write(stream: IO[bytes], message: Mapping[str, Any], payload: bytes = b"") -> None:
    """A message: a line of JSON that says how many bytes follow it."""
    stream.write(json.dumps({**message, "bytes": len(payload)}, separators=(",", ":")).encode() + b"\n" + payload)
    stream.flush()


def read(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """The next message.  Raises EOFError where there is none, or half of one."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("it said no more")
    message = json.loads(line)
    payload = stream.read(message["bytes"])
    if len(payload) != message["bytes"]:
        raise EOFError("it stopped in the middle of an answer")
    return message, payload


def read_in_time(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None where there is none, or none within `IDLE_SECONDS`.  One message is answered before the next one
    is sent, so none lies in the buffer of the stream."""
    if not select.select([stream], [], [], IDLE_SECONDS)[0]:
        return None
    try:
        return read(stream)[0]
    except EOFError:
        return None
