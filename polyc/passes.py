"""The pass manager: named passes of one level, and the runner that all levels share.

A level (rewritings of a program, transformations of a loop nest) is one tuple of passes.  A pass is a function of its value
and of the level's context; it returns a value equal to its argument where it changes nothing.  Whatever is asked of all passes
stands here: switching one off, remarks, verification in between, times, texts, and what becomes of a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Generic, TypeVar

from polyc.config import debugging
from polyc.diagnostics import ArgumentError, CompileBudgetError, Diagnostic, Remark, UnsupportedError, suggest_name
from polyc.records import dataclass, replace

T = TypeVar("T")
C = TypeVar("C")


def always(ctx: Any) -> bool:
    return True


def summarize(about: object) -> str:
    """The first line of a docstring, as one of a table: what a pass is for."""
    first = (about.__doc__ or "undocumented").split("\n")[0].rstrip(".")
    return first[0].lower() + first[1:]


@dataclass(frozen=True, slots=True)
class Pass(Generic[T, C]):
    """One pass of a level."""

    name: str
    """As in remarks, on the command line and in ``disable``: ``stream-stores``."""
    run: Callable[[T, C], T]
    why: str
    """One line: what it is for."""
    when: Callable[[C], bool] = always
    """Whether options and machine ask for it; the value is the pass's own business."""
    required: bool = False
    """Part of the translation: it cannot be switched off, and a fault in it is one of the whole level."""


@dataclass(frozen=True, slots=True)
class Level(Generic[T, C]):
    """The passes of one stage, in their order."""

    name: str
    """The stage whose text `text` is: ``program``, ``loops``."""
    passes: tuple[Pass[T, C], ...]
    verify: Callable[[T], None]
    """Raises where a value is not well formed."""
    text: Callable[[T], str]

    def __post_init__(self) -> None:
        names = [p.name for p in self.passes]
        assert len(set(names)) == len(names), f"two passes of {self.name} have one name"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of one pass."""

    level: Level[Any, Any]
    step: Pass[Any, Any]
    before: Any
    after: Any
    has_changed: bool
    seconds: float


@dataclass(slots=True)
class Session:
    """What the passes of one compilation share: what is switched off, and what they say."""

    disabled: frozenset[str] = frozenset()
    remarks: list[Remark] = field(default_factory=list)
    has_failed: bool = False
    """Whether something was left out, or done in a simpler way, for a fault that may be gone tomorrow."""
    ran: list[Ran] = field(default_factory=list)
    """Every run of a pass, in order, while `recording`; empty otherwise."""


_recorders: ContextVar[tuple[list[Session], ...]] = ContextVar("_recorders", default=())


@contextmanager
def recording() -> Iterator[list[Session]]:
    """Keep the values between passes, and their times, of every compilation in this context: one session each, in order."""
    sessions: list[Session] = []
    token = _recorders.set((*_recorders.get(), sessions))
    try:
        yield sessions
    finally:
        _recorders.reset(token)


def begin_session(disabled: Iterable[str] = ()) -> Session:
    """A session for one compilation, known to those who record."""
    session = Session(frozenset((disabled,) if isinstance(disabled, str) else disabled))
    for sessions in _recorders.get():
        sessions.append(session)
    return session


def run(level: Level[T, C], value: T, ctx: C, session: Session) -> T:
    """`value` after the passes of `level` that are neither switched off nor of no use here.

    A fault in a pass that is not required, or a value of its that is not well formed, costs the pass, not the compilation: the
    value before it goes on, and a *missed* remark says so.  What comes out is verified; where that, or a pass, fails, all run
    once more, and each changed value is.  With ``POLYC_DEBUG=1`` faults surface, in the pass that is at fault."""
    if not debugging() and not _recorders.get():
        n_remarks = len(session.remarks)
        try:
            result = _run(level, value, ctx, session, is_trusting=True)
            if result is not value:
                level.verify(result)
            return result
        except (CompileBudgetError, UnsupportedError):
            raise
        except Exception:
            del session.remarks[n_remarks:]
    return _run(level, value, ctx, session, is_trusting=False)


def _run(level: Level[T, C], value: T, ctx: C, session: Session, is_trusting: bool) -> T:
    """`is_trusting`: faults are for the caller, and values are not verified."""
    is_recording = bool(_recorders.get())
    for step in level.passes:
        if not step.when(ctx) or (step.name in session.disabled and not step.required):
            continue
        n_remarks, started = len(session.remarks), time.process_time() if is_recording else 0.0
        try:
            changed = step.run(value, ctx)
            has_changed = changed is not value and changed != value
            if has_changed and not is_trusting:
                level.verify(changed)
        except (CompileBudgetError, UnsupportedError):
            raise
        except Exception as fault:
            if step.required or is_trusting or debugging():
                raise
            message = f"left out after an internal fault: {type(fault).__name__}: {fault}"
            session.remarks[n_remarks:] = [Remark("missed", step.name, message)]
            session.has_failed, has_changed, changed = True, False, value
        if is_recording:
            session.ran.append(Ran(level, step, value, changed, has_changed, time.process_time() - started))
        own = session.remarks[n_remarks:]
        if has_changed and not own and not step.required:
            own = [Remark("passed", step.name, step.why)]
        session.remarks[n_remarks:] = [r if r.kind == "analysis" else replace(r, pass_name=step.name) for r in own]
        value = changed
    return value


def check_names(disabled: Iterable[str], levels: Iterable[Level[Any, Any]]) -> None:
    """Raise ArgumentError (``argument-option``) for a name that no pass has, or that of a required one."""
    passes = {p.name: p for level in levels for p in level.passes}
    for name in disabled:
        step = passes.get(name)
        if step is not None and not step.required:
            continue
        message = f"there is no pass {name!r}" if step is None else f"{name} is part of the translation and cannot be disabled"
        optional = [p.name for p in passes.values() if not p.required]
        help = suggest_name(name, optional) or "`polyc passes` lists the passes that may be disabled"
        raise ArgumentError(Diagnostic("argument-option", message, None, help))
