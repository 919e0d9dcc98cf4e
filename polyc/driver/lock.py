"""One compilation at a time: isl's context is not thread-safe."""

from __future__ import annotations

import os
from _thread import RLock, _local  # `threading` itself takes as long to import as a kernel to load

FORK_PATIENCE = 60.0
"""Seconds that a fork waits for compilations of other threads."""
_lock = RLock()
_forking = _local()


def compiling() -> RLock:
    """The lock to hold around whatever uses isl: ``with compiling(): ...``.  A thread may take it again."""
    return _lock


def _finish_compiling() -> None:
    """Before a fork: what another thread is in the middle of (isl, LLVM, imports, cached properties) holds locks that nobody
    would release in the child."""
    _forking.is_holding = _lock.acquire(timeout=FORK_PATIENCE)


def _go_on() -> None:
    if _forking.is_holding:
        _lock.release()


def _renew_lock() -> None:
    """In a child after a fork: another thread of the parent may have held the lock all the same."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_compiling, after_in_parent=_go_on, after_in_child=_renew_lock)
