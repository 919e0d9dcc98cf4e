"""One compilation at a time: isl's context is not thread-safe."""

from __future__ import annotations

import os
import threading

_lock = threading.RLock()


def compiling() -> threading.RLock:
    """The lock to hold around whatever uses isl: ``with compiling(): ...``.  A thread may take it again."""
    return _lock


def _renew_lock() -> None:
    """After a fork: another thread of the parent may have held the lock, and will never release it here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
