"""The public functions that make operators: `op`, `compile`, `einsum`, `einsum_operator`, `indices`."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, overload

from polyc import driver, recall
from polyc.api.dynamic import Dynamic, check_dynamic
from polyc.api.operator import Operator
from polyc.api.sources import (
    EinsumSource,
    FixedSource,
    FunctionSource,
    issue_warnings,
    make_function_source,
    possible_sizes,
)
from polyc.config import SWITCHES, Options, default_options, default_options_key
from polyc.crash import name_crashes
from polyc.diagnostics import (
    ArgumentError,
    ArgumentTypeError,
    Diagnostic,
    PolycError,
    SemanticError,
    suggest_name,
    user_stacklevel,
)
from polyc.ir.program import Program
from polyc.ir.types import DType
from polyc.runtime.arguments import with_suggestion
from polyc.runtime.arrays import argument_error
from polyc.runtime.sizes import check_size

if TYPE_CHECKING:
    from polyc.api.amortise import EinsumCalls


def make_options(changes: Mapping[str, Any]) -> Options:
    """The options of the environment with `changes`; unknown names and values are `ArgumentError`s."""
    try:
        options = default_options().replace(**changes)
    except TypeError as problem:
        unknown = sorted(set(changes) - {f.name for f in fields(Options)})
        help = "see help(polyc.Options)"
        if unknown:
            known = [*(f.name for f in fields(Options)), "sizes", "dynamic", "entry"]
            help = _OTHER_OPTIONS.get(unknown[0]) or suggest_name(unknown[0], known) or help
        raise argument_error("argument-type-option", str(problem), None, help) from problem
    for switch in SWITCHES.keys() & changes.keys():
        message = f"option {switch} goes with the next release; write disable={SWITCHES[switch]!r} for {switch}=False"
        warnings.warn(message, DeprecationWarning, user_stacklevel())
    return check_options(options)


_OTHER_OPTIONS = {
    **dict.fromkeys(
        ("threads", "num_threads", "n_threads", "nthreads"), "threads are a setting of the process: polyc.set_num_threads(n)"
    ),
    **dict.fromkeys(
        ("fastmath", "fast_math"), "sums may be reordered unless reassociate=False, and nothing else is relaxed: leave it out"
    ),
    **dict.fromkeys(("unroll", "fuse", "schedule", "opt_level", "tile_sizes"), "polyc decides that itself: leave it out"),
    **dict.fromkeys(("device", "backend"), "code is made for the processor; target= restricts its instruction set"),
    **dict.fromkeys(("verbose", "debug"), "what was decided is told by op.explain(...), and in the log polyc"),
    "dynamic": "polyc.einsum shares one kernel between shapes that vary; an operator for any sizes is a .tc text or a function",
    "cache": "the environment switches the disk cache off: POLYC_CACHE=0",
    "out": "arrays for results are given at the call: op(x, out=y)",
}
"""What options of other compilers are called here."""


def check_options(options: Options) -> Options:
    """`options` where their values are known ones, else an `ArgumentError`."""
    if options.disable:
        from polyc.passes import check_names

        check_names(options.disable, driver.pass_levels())
    for name, usual, others in (("target", "host", _models), ("scheduler", "ilp", lambda: ("isl", "source"))):
        if getattr(options, name) != usual and getattr(options, name) not in others():
            message = f"option {name} cannot be {getattr(options, name)!r}"
            from_environment = name == "target" and options.target == default_options().target
            where = " (POLYC_TARGET says so in the environment)" if from_environment else ""
            raise argument_error("argument-option", message, None, f"it is one of: {', '.join((usual, *others()))}{where}")
    for field in fields(Options):
        value = getattr(options, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            message = f"option {field.name} is True or False, not {value!r}"
            raise argument_error("argument-type-option", message, None, f"write {field.name}=True or {field.name}=False")
    return options


def _models() -> tuple[str, ...]:
    from polyc.machine import MODELS

    return tuple(MODELS)


@overload
def op(
    function: Callable[..., Any] | str,
    /,
    *,
    sizes: Mapping[str, int] | None = None,
    dynamic: Dynamic = "auto",
    **options: Any,
) -> Operator: ...
@overload
def op(
    *, sizes: Mapping[str, int] | None = None, dynamic: Dynamic = "auto", **options: Any
) -> Callable[[Callable[..., Any] | str], Operator]: ...
def op(
    function: Callable[..., Any] | str | None = None,
    /,
    *,
    sizes: Mapping[str, int] | None = None,
    dynamic: Dynamic = "auto",
    **options: Any,
) -> Operator | Callable[..., Operator]:
    """Make an `Operator` of an einsum-style function, read from its source; a decorator, with or without options.

    ::

        @polyc.op
        def linear_relu(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]"):
            H[m, n] += X[m, k] * W[n, k]
            Y[m, n] = max(H[m, n] + b[n], 0)
            return Y

        @polyc.op(reassociate=False)
        def total(X): ...

    `sizes` fixes sizes for every call: ``sizes={"K": 64}``.  `dynamic` says which sizes one kernel serves any values of:
    ``"auto"`` those that keep changing (`polyc.api.dynamic` states the rule), ``True`` all, ``False`` none, ``("B", "S")``
    these.  `options` are the fields of `polyc.Options`.  A string with the function's source is accepted too.
    Raises `SyntaxErrorInSource` and `SemanticError` with all errors of the function at once.
    """
    if function is None:
        return functools.partial(op, sizes=sizes, dynamic=dynamic, **options)
    chosen, fixed = make_options(options), _check_sizes(sizes)
    return _make_operator(make_function_source(function), function, chosen, fixed, dynamic)


def _make_operator(
    source: FunctionSource,
    function: Callable[..., Any] | str,
    options: Options,
    fixed: Mapping[str, int],
    dynamic: Dynamic,
) -> Operator:
    choice = check_dynamic(source.name, dynamic, possible_sizes(source))
    live = None if isinstance(function, str) else function
    return Operator(source, source.name, options, fixed, function=live, dynamic=choice)


def _check_sizes(sizes: Mapping[str, int] | None) -> dict[str, int]:
    if sizes is not None and not isinstance(sizes, Mapping):
        raise argument_error("argument-type-size", f"sizes is a {type(sizes).__name__}", None, "pass a dict: sizes={'N': 128}")
    return {name: check_size(name, value) for name, value in (sizes or {}).items()}


def compile(
    source: str | os.PathLike[str] | Callable[..., Any],
    entry: str | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    dynamic: Dynamic = "auto",
    **options: Any,
) -> Operator:
    """Make an `Operator` from ``.tc`` text, a ``.tc`` file (a `Path`, or a string that ends in ``.tc``) or a function.

    `entry` names the def where there are several.  `sizes` fixes size symbols for every call.  `dynamic` and
    `options` are those of `op`.

    ::

        mm = polyc.compile("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        c = mm(a, b)
    """
    chosen, fixed = make_options(options), _check_sizes(sizes)
    if callable(source):
        made = make_function_source(source)
        if entry is not None and entry != made.name:
            raise _no_entry(entry, [made.name])
        return _make_operator(made, source, chosen, fixed, dynamic)
    return compile_text(*read_text(source), entry, chosen, fixed, dynamic)


def compile_text(
    text: str, filename: str, entry: str | None, options: Options, sizes: Mapping[str, int], dynamic: Dynamic
) -> Operator:
    """The operator of a text; `filename` is what diagnostics call it."""
    program = select_program(text, filename, entry)
    choice = check_dynamic(program.name, dynamic, program.sizes)
    return Operator(FixedSource(program), program.name, options, sizes, dynamic=choice)


def read_text(source: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a source and its name for diagnostics.  Unreadable files are `ArgumentError`s ``argument-file``."""
    if isinstance(source, str) and ("\n" in source or not source.endswith(".tc")):
        if re.fullmatch(r"[^\s(){}]*[./\\][^\s(){}]*", source):  # no definition is one word
            message = f"{source} is neither .tc text nor a path that ends in .tc"
            raise _file_error(message, f"pass pathlib.Path({source!r}) for a file of another name")
        return source, "<string>"
    if not isinstance(source, (str, os.PathLike)):
        raise argument_error(
            "argument-type-source", f"a {type(source).__name__} is no source", None, "pass .tc text, a path or a function"
        )
    from pathlib import Path

    path = Path(source)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_TEXT + 1)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _file_error(f"cannot read {path}: {reason}", "check the path and its permissions") from problem
    return decode_text(content, str(source)), str(source)


MOST_TEXT = 64 << 20
"""Bytes of a source; a file with more is something else, and a device may have no end."""


def decode_text(content: bytes, filename: str) -> str:
    """What a file of that name says.  A byte order mark, and the ends of lines of other systems, are an editor's business: as
    Python does for its own files.  `ArgumentError` ``argument-file`` where it is not UTF-8."""
    if len(content) > MOST_TEXT:
        raise _file_error(f"{filename} is not a text file (it has more than {MOST_TEXT >> 20} MiB)", "give a file of .tc text")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as problem:
        is_utf16 = problem.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        reason = "it is UTF-16" if is_utf16 else f"byte {problem.start} is not UTF-8"
        raise _file_error(f"{filename} is not a text file ({reason})", "save it as UTF-8") from problem


def _file_error(message: str, help: str) -> PolycError:
    return ArgumentError(Diagnostic("argument-file", message, None, help))


def select_program(text: str, filename: str, entry: str | None) -> Program:
    """The def called `entry`, or the only one."""
    with driver.compiling(), name_crashes(f"reading {filename}"):  # calls infer ranges, and isl is not thread-safe
        programs, found = recall.read_tc(text, filename)
    issue_warnings(found)
    names = [p.name for p in programs]
    if entry is not None:
        chosen = [p for p in programs if p.name == entry]
        if not chosen:
            raise _no_entry(entry, names)
        return chosen[-1]
    if len(programs) != 1:
        listing = ", ".join(names) or "none"
        raise argument_error(
            "argument-entry",
            f"{filename} has {len(programs)} defs ({listing}), and none was chosen",
            None,
            f"name one: entry={names[0]!r}, on the command line --entry {names[0]}" if names else "write at least one def",
        )
    return programs[0]


def _no_entry(entry: str, names: list[str]) -> PolycError:
    return argument_error("argument-entry", f"there is no def named {entry}", None, with_suggestion(entry, names, "defs are"))


_MAX_EINSUMS = 1024
_warm_calls: dict[Any, EinsumCalls] = {}
"""By subscripts and environment: what `_einsum_calls` gives, without reading the environment's options again."""


@functools.lru_cache(maxsize=_MAX_EINSUMS)
def _einsum_calls(
    subscripts: str, options: Options, dtype: DType | None, path: tuple[tuple[int, ...], ...] | None
) -> EinsumCalls:
    from polyc.api.amortise import EinsumCalls

    return EinsumCalls(subscripts, options, lambda: _einsum_operator(subscripts, options, dtype, path), dtype, path)


@functools.lru_cache(maxsize=_MAX_EINSUMS)
def _einsum_operator(
    subscripts: str, options: Options, dtype: DType | None, path: tuple[tuple[int, ...], ...] | None
) -> Operator:
    operator = Operator(EinsumSource(subscripts, dtype, path), "einsum", check_options(options))
    operator.remarks_source = lambda: _einsum_calls(subscripts, options, dtype, path).remarks()
    return operator


def forget_einsums() -> None:
    """Drop the operators and decisions of all einsums."""
    _einsum_calls.cache_clear()
    _einsum_operator.cache_clear()
    _warm_calls.clear()


def einsum_operator(subscripts: str, **options: Any) -> Operator:
    """The `Operator` of an einsum: ``polyc.einsum_operator("ik,kj->ij")(a, b)``.  The same one for the same arguments.

    It compiles a kernel for every new shape, where `einsum` waits until that pays; its `remarks` tell what `einsum` did.
    """
    if not isinstance(subscripts, str):
        message = f"the first argument of einsum is a {type(subscripts).__name__}, not a subscript string"
        raise argument_error("argument-type-subscripts", message, None, "write for example einsum('ik,kj->ij', a, b)")
    # The options are a part of the key since the environment may change them between calls.
    return _einsum_operator(subscripts, make_options(options) if options else default_options(), None, None)


def einsum(
    subscripts: Any = None,
    /,
    *arrays: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = False,
) -> Any:
    """What ``numpy.einsum(subscripts, *arrays)`` computes, with NumPy's result type.

    A result without dimensions is a NumPy scalar, as in NumPy (operators give an array of shape ``()``); with `out`,
    `out` itself is returned.  The other arguments are NumPy's, too:

    * Instead of subscripts, a list of numbers (and ``...``) behind each array, and one for the output:
      ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    * `dtype`: the element type to compute in; by default the common one of the arrays and `out`.
    * `casting`: which casts to `dtype`, and from it to that of `out`, are allowed.
    * `order`: ``"F"`` or ``"A"`` (where all arrays are in Fortran order) give a result in Fortran order, others in C order.
    * `out` may share memory with the arrays.
    * `optimize`: a path, as `numpy.einsum_path` gives; for any other value polyc chooses the order of contraction.

    New shapes are computed by NumPy until calls have lost as much time as a compilation takes (`polyc.api.amortise` states the
    rule); ``polyc.einsum_operator(subscripts).remarks`` tells how each shape is computed.

    ::

        polyc.einsum("bhqd,bhkd->bhqk", q, k)

    Raises SemanticError for wrong subscripts, ArgumentError for arrays that do not fit them, ArgumentTypeError for element
    types: subclasses of what NumPy raises.
    """
    is_plain = type(subscripts) is str and dtype is None and order in ("K", "C") and casting == "safe"
    if not is_plain or (optimize is not False and optimize is not True):
        return _einsum_general(subscripts, arrays, out, dtype, order, casting, optimize)
    key = (subscripts, default_options_key())
    calls = _warm_calls.get(key)
    if calls is None:
        calls = _einsum_calls(subscripts, default_options(), None, None)
        if len(_warm_calls) >= _MAX_EINSUMS:
            _warm_calls.clear()
        _warm_calls[key] = calls
    try:
        result = calls(arrays, out)
    except PolycError as error:  # `out` takes part in the choice of the type of the computation, and may be one of the arrays
        is_type = isinstance(error, ArgumentTypeError) and out is not None
        if not is_type and error.code not in ("argument-type-byteorder", "unsupported-alias", "argument-overlap"):
            raise
        return _einsum_general(subscripts, arrays, out, dtype, order, casting, optimize)
    return result[()] if out is None and result.ndim == 0 else result


def _einsum_general(
    subscripts: Any, arrays: tuple[Any, ...], out: Any, dtype: Any, order: Any, casting: Any, optimize: Any
) -> Any:
    from polyc.api.einsum_arguments import explain_letters, join_sublists, run_general

    def find(text: str, computed: DType | None, path: Any) -> EinsumCalls:
        return _einsum_calls(text, default_options(), computed, path)

    if isinstance(subscripts, bytes):  # as NumPy takes them
        subscripts = subscripts.decode("latin-1")
    if isinstance(subscripts, str):
        result = run_general(str(subscripts), arrays, out, dtype, order, casting, optimize, find)
    else:
        joined, operands = join_sublists(() if subscripts is None else (subscripts, *arrays))
        try:
            result = run_general(joined, operands, out, dtype, order, casting, optimize, find)
        except PolycError as error:
            raise explain_letters(error, joined) from None
    return result[()] if out is None and result.ndim == 0 else result


def indices(*names: str) -> tuple[Any, ...]:
    """Index objects that linters accept as names: ``i, j = polyc.indices("i j")``, or each name in a text of its own."""
    if not all(isinstance(n, str) for n in names):
        wrong = next(n for n in names if not isinstance(n, str))
        message = f"the name of an index is a text, not {wrong!r}"
        raise argument_error("argument-type-source", message, None, 'write i, j = polyc.indices("i j")')
    try:
        found: tuple[Any, ...] = driver.indices(" ".join(names))
        return found
    except ValueError as problem:
        if isinstance(problem, PolycError):
            raise
        raise SemanticError(Diagnostic("semantic-index-name", str(problem), None, "indices('i j')")) from problem
