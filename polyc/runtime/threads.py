"""Whose threads a call uses, and how many.

Compiled code forks and joins through the GOMP entry points.  On Linux they lead to a pool of polyc's own
(`codegen/objects/pool_ir.py`), elsewhere to an OpenMP runtime: libgomp, LLVM's libomp and Intel's runtime all have them.
A process must not hold two OpenMP runtimes, so the library is looked for only when the first parallel code is loaded:
one that the process has loaded already wins (PyTorch brings its own), else libgomp, else libomp.  Its limit of threads,
which others lower (`threadpoolctl`), counts for the pool as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from _thread import RLock
from collections.abc import Callable, Iterator
from numbers import Integral

from polyc.config import MAX_THREADS, parse_threads
from polyc.diagnostics import Diagnostic, PolycWarning, user_stacklevel
from polyc.environment import warn_of_environment
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""What compiled code calls."""

HAS_POOL = sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")
"""Whether kernels use a pool of polyc's own, which a forked process has anew."""


@dataclass(frozen=True, slots=True)
class OpenMP:
    """A loaded OpenMP runtime.  `loaded_before`: someone else in the process had loaded it."""

    path: str
    loaded_before: bool
    library: ctypes.CDLL
    addresses: dict[str, int]

    max_threads_function: Callable[[], int]
    max_threads_address: int

    def max_threads(self) -> int:
        """OpenMP's own limit in this thread (`OMP_NUM_THREADS`, `threadpool_limits`, `omp_set_num_threads`)."""
        return self.max_threads_function()


class _State:
    """What this process knows about threads; guarded by `_lock` where it changes."""

    def __init__(self) -> None:
        self.searched = False
        self.openmp: OpenMP | None = None
        self.pool: dict[str, int] = {}  # addresses of its entry points, once it is loaded
        self.requested: int | None = None
        self.default = 0  # default_num_threads() when it was last read; 0: to be read
        self.baseline = 0  # omp_get_max_threads() when `requested` was set; else its default
        self.forked_after_use = False
        self.used = False
        self.warned: set[str] = set()
        self.fallback: tuple[object, ...] = ()


_state = _State()
_lock = RLock()

known_team = (ctypes.c_int64 * 3)()
"""What `team_size` would say, for compiled code: the threads asked for, 0 where it has to be called; the number below which
OpenMP's limit counts; the address of the function that gives this limit, 0 for none."""


def _open(path: str, loaded_before: bool) -> OpenMP | None:
    """The runtime at `path`, or None where it cannot be opened or lacks the GOMP entry points."""
    try:
        library = ctypes.CDLL(path)
        addresses = {s: _address(library, s) for s in SYMBOLS}
        limit_address = _address(library, "omp_get_max_threads")
        limit = ctypes.PYFUNCTYPE(ctypes.c_int)(("omp_get_max_threads", library))  # too short to release the GIL for
    except (OSError, AttributeError):
        return None
    return OpenMP(path, loaded_before, library, addresses, limit, limit_address)


def _address(library: ctypes.CDLL, symbol: str) -> int:
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    if address is None:
        raise AttributeError(symbol)
    return address


def loaded_runtimes() -> list[str]:
    """Paths of the OpenMP libraries that the process holds, libgomp first, in a fixed order."""
    if _is_mapped() is False:
        return []  # threadpoolctl takes long to import

    import threadpoolctl

    paths = {str(i["filepath"]) for i in threadpoolctl.threadpool_info() if i["user_api"] == "openmp"}
    return sorted(paths, key=lambda p: ("libgomp" not in os.path.basename(p), p))


def find_openmp() -> OpenMP | None:
    """The OpenMP runtime of this process, loading one if there is none; None where the system has none."""
    if not _state.searched:
        with _lock:
            if not _state.searched:
                _state.openmp = _search_openmp()
                _state.searched = True
    return _state.openmp


def _search_openmp() -> OpenMP | None:
    loaded = loaded_runtimes()
    for path in loaded:
        found = _open(path, loaded_before=True)
        if found is not None:
            return found
    if loaded:
        return None  # one that lacks the GOMP entry points: a second runtime beside it would be worse than one thread
    for name in _library_names():
        found = _open(name, loaded_before=False) if name else None
        if found is not None:
            return found
    return None


def _library_names() -> Iterator[str | None]:
    """Names to try, the likeliest first; `find_library` runs other programs, so it is asked only when it comes to it."""
    yield "libgomp.so.1"
    import ctypes.util

    yield ctypes.util.find_library("gomp")
    yield from ("libomp.so.5", "libomp.so")
    yield ctypes.util.find_library("omp")
    yield "libomp.dylib"
    yield ctypes.util.find_library("iomp5")


def symbols(load_pool: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Addresses of the entry points for code that is about to be loaded: of the pool that `load_pool` gives, else OpenMP's.

    Where there is neither they lead to a team of one thread, and a `threads-none` warning is issued once."""
    openmp = find_openmp()
    if HAS_POOL:
        with _lock:
            _state.pool = _state.pool or load_pool()
        return dict(_state.pool)
    if openmp is not None:
        return dict(openmp.addresses)
    _warn_once(
        "threads-none",
        "no OpenMP runtime was found, so kernels run on one thread",
        "install libgomp or libomp; `polyc doctor` shows what is looked for",
    )
    return _single_thread_symbols()


def _single_thread_symbols() -> dict[str, int]:
    with _lock:
        if not _state.fallback:
            body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
            count_type = ctypes.CFUNCTYPE(ctypes.c_int)
            parallel_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)

            def run_alone(body: int, data: int, n_threads: int, flags: int) -> None:
                body_type(body)(data)

            _state.fallback = (parallel_type(run_alone), count_type(lambda: 0), count_type(lambda: 1))
    addresses = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in _state.fallback)  # type: ignore[arg-type]
    return dict(zip(SYMBOLS, addresses, strict=True))


def count_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _openmp_default() -> int:
    """OMP_NUM_THREADS, which may be a list by nesting level, else the number of cores."""
    return parse_threads(os.environ.get("OMP_NUM_THREADS", "").split(",")[0]) or count_cores()


def default_num_threads() -> int:
    """POLYC_NUM_THREADS, else OMP_NUM_THREADS, else the number of cores."""
    warn_of_environment()
    return parse_threads(os.environ.get("POLYC_NUM_THREADS", "")) or _openmp_default()


def check_num_threads(n: int) -> None:
    """``argument-threads`` or ``argument-type-threads`` for what is no number of threads."""
    if isinstance(n, bool) or not isinstance(n, Integral):
        raise argument_error(
            "argument-type-threads", f"the number of threads must be an integer, not {n!r}", None, "pass an int"
        )
    if not 1 <= n <= MAX_THREADS:
        message = f"the number of threads must be between 1 and {MAX_THREADS}, but is {n}"
        raise argument_error("argument-threads", message, None, f"this machine has {count_cores()} cores")


def set_num_threads(n: int | None) -> None:
    """Use up to `n` threads for each call from now on, in every Python thread; None goes back to the default.

    Results do not depend on it.  Limits set later with `threadpoolctl.threadpool_limits` still lower it.
    """
    if n is not None:
        check_num_threads(n)
    with _lock:
        _read_defaults()
        _state.requested = None if n is None else int(n)
        if n is not None and _state.openmp is not None:
            _state.baseline = _state.openmp.max_threads()
        known_team[0] = 0


@contextlib.contextmanager
def limited_to(n: int | None) -> Iterator[None]:
    """`set_num_threads(n)` for a while."""
    before = _state.requested
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


def _read_defaults() -> None:
    """Environment and affinity cost microseconds to read: they are looked at once, and at each `set_num_threads`."""
    _state.default, _state.baseline = default_num_threads(), _openmp_default()


def get_num_threads() -> int:
    """Threads that a call made now from this Python thread may use (at least 1)."""
    if _state.forked_after_use:
        return 1
    if not _state.default:
        _read_defaults()
    requested = _state.requested or _state.default
    openmp = _state.openmp
    if openmp is None:
        return 1 if _state.searched and not HAS_POOL else requested
    # OpenMP's limit counts where somebody lowered it: `threadpool_limits`, torch.set_num_threads.  Its unchanged default
    # does not, so that POLYC_NUM_THREADS may exceed OMP_NUM_THREADS.
    limit = openmp.max_threads()
    return min(requested, limit) if limit < _state.baseline else requested


def team_size() -> int:
    """As `get_num_threads`, for a call that is about to run: also warns once after a fork."""
    n = get_num_threads()
    if n > 1:
        _state.used = True
    if _state.searched and not _state.forked_after_use:
        _tell_team()
    elif _state.forked_after_use:
        _warn_once(
            "threads-fork",
            "this process was forked after OpenMP had started threads, which do not survive a fork: kernels run on one thread",
            "use the 'spawn' or 'forkserver' start method of multiprocessing",
        )
    return n


def _tell_team() -> None:
    """Fill `known_team`, where a call with more than one thread has nothing left to note."""
    with _lock:
        requested, openmp = _state.requested or _state.default, _state.openmp
        if requested == 1 or _state.used:
            known_team[1], known_team[2] = (_state.baseline, openmp.max_threads_address) if openmp is not None else (0, 0)
            known_team[0] = requested if openmp is not None or HAS_POOL else 1


def _after_fork() -> None:
    global _lock
    _lock = RLock()  # another thread of the parent may have held it
    known_team[0] = 0
    if HAS_POOL:
        return
    openmp = _state.openmp
    # A runtime that others loaded may have threads that polyc knows nothing of.
    others = openmp is not None and openmp.loaded_before
    _state.forked_after_use = _state.forked_after_use or _state.used or others
    if not _state.searched and not _state.forked_after_use:
        # Nothing is known yet.  If OpenMP is already in the process, its threads may have run in the parent.
        _state.forked_after_use = bool(_is_mapped())


def _is_mapped() -> bool | None:
    """Whether an OpenMP library is in the process, None where the system does not say; reads a file only, as code after a
    fork should do little."""
    try:
        with open("/proc/self/maps") as maps:
            return any(name in line for line in maps for name in ("libgomp", "libomp", "libiomp"))
    except OSError:
        return None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _warn_once(code: str, message: str, help: str) -> None:
    if code in _state.warned:
        return
    _state.warned.add(code)
    warnings.warn(PolycWarning(Diagnostic(code, message, None, help, "warning")), stacklevel=user_stacklevel())
