"""What is read of decorated functions: what they declare, and their programs.

An entry belongs to the code of a function and the text of its file.  What names outside of it meant when it was read stands in
the entry, for the function and for all that were read with it; it counts only where they mean the same now."""

from __future__ import annotations

import inspect
import linecache
import numbers
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polyc import driver
from polyc.diagnostics import Diagnostic, Span
from polyc.digest import sha256
from polyc.ir.expr import Expr
from polyc.ir.program import Program
from polyc.ir.types import DType
from polyc.live import describe_code, find_numbers, is_own_function, look_up, write_number
from polyc.log import logger
from polyc.recall.entries import open_store, own_versions, read_or_make
from polyc.records import dataclass

if TYPE_CHECKING:
    from polyc.cache import Entry

T = TypeVar("T")
_PLAIN = (type(None), bool, int, float, complex)
"""Classes of defaults of which an entry gives the same again."""
Function = Callable[..., Any] | str


@dataclass(frozen=True, slots=True)
class Declared:
    """What a function says about its arguments (`frontends.python.signature`)."""

    name: str
    parameters: tuple[tuple[str, DType | None, tuple[Expr, ...] | None, Span, Any], ...]
    """Name, element type and extents where they are annotated, place, default."""
    constants: tuple[tuple[str, int | float | bool | None], ...]
    """Compile-time constants and their defaults."""
    sizes: tuple[str, ...]
    matrices: tuple[tuple[str, int], ...] = ()
    """Parameters whose entries a call gives in compressed rows (0) or columns (1), or as ragged sequences (2)."""

    @property
    def is_complete(self) -> bool:
        """Whether one program serves every call."""
        return all(p[1] is not None for p in self.parameters) and all(value is not None for _, value in self.constants)


def read_signature(function: Function) -> Declared:
    """As `driver.read_signature`."""

    def read() -> tuple[Any, ...]:
        found = driver.read_signature(function)
        parameters = tuple(
            (p.name, *((None, None) if p.annotation is None else (p.annotation.dtype, p.annotation.shape)), p.span, p.default)
            for p in found.parameters
        )
        formats = ((p.name, p.annotation.format) for p in found.parameters if p.annotation is not None)
        matrices = tuple((name, ("csr", "csc", "ragged").index(format)) for name, format in formats if format)
        return found.name, parameters, tuple((c.name, c.value) for c in found.constants), found.sizes, matrices

    return Declared(*_recall("signature", function, (), read))


def read_function(
    function: Function, dtypes: Mapping[str, tuple[DType, int]], constants: Mapping[str, Any], weak: frozenset[str]
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Program and warnings of `driver.read_function`."""

    def read() -> tuple[Program, tuple[Diagnostic, ...]]:
        found = driver.read_function(function, dtypes or None, constants or None, weak)
        return found.program, found.warnings

    parts = (
        ("types", ", ".join(f"{n}: {t.name} of rank {rank}" for n, (t, rank) in dtypes.items())),
        ("numbers", ", ".join(sorted(weak))),
        ("constants", ", ".join(f"{n}={type(v).__name__} {write_number(v)}" for n, v in sorted(constants.items()))),
    )
    return _recall("function", function, parts, read)


def _recall(kind: str, function: Function, parts: tuple[tuple[str, str], ...], read: Callable[[], T]) -> T:
    store = open_store()
    if store is None:
        return read()
    live = None if isinstance(function, str) else _find_live(function)
    described = _digest(function) if isinstance(function, str) else None if live is None else _describe_function(live)
    if described is None:
        return read()
    from polyc.cache import Entry, Key, SourcePlaces, Unstorable, decode, encode

    texts: list[Any] = []
    name = "a text" if live is None else live.__name__

    def make() -> T:
        from polyc.frontends.python.source import recording

        with recording(texts):
            return read()

    def write(made: T) -> Entry:
        places = SourcePlaces()
        try:
            names = _describe_names(live, texts)
            if kind == "signature" and any(type(p[-1]) not in _PLAIN for p in made[1]):  # type: ignore[index]
                raise _Unknown("a default of a class of its own")
        except _Unknown as error:
            raise Unstorable(f"{error} has no description") from error
        return Entry({"value": encode(made, places), "sources": places.plain_sources(), "names": names})

    def restore(entry: Entry) -> T | None:
        changed = None if live is None else _find_change(live, entry.header["names"])
        if changed is not None:
            logger.info("cache: %s of %s was read when %s meant something else", kind, name, changed)
            return None
        found: T = decode(entry.header["value"], SourcePlaces(entry.header["sources"]))
        return found

    key = Key(kind, name, described, (*parts, ("versions", own_versions())))
    return read_or_make(store, key, restore, make, write)


# --- What names mean -------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """A value, of which nobody knows what reading a function would make of it."""


def _find_live(value: object) -> types.FunctionType | None:
    """The function that is read for a value: its own, that of an operator, or that by which a monoid combines."""
    found = getattr(value, "combine", value) if type(value).__name__ == "UserMonoid" else value
    try:
        found = inspect.unwrap(found)  # type: ignore[arg-type]
    except Exception:  # it leads back to itself, or the object raises what it likes when it is asked for an attribute
        return None
    return found if isinstance(found, types.FunctionType) else None


def _digest(text: str) -> str:
    return str(sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _describe_function(function: types.FunctionType) -> str | None:
    """A digest of the function and the file it is in; None where that is not there."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        return None
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    annotations = {n: v if isinstance(v, str) else type(v).__name__ for n, v in function.__annotations__.items()}
    try:
        values = [(d[0], _describe(d[1])) if isinstance(d, tuple) and len(d) == 2 else _describe(d) for d in defaults]
    except _Unknown:
        return None
    place = (function.__module__, function.__qualname__, code.co_filename, code.co_firstlineno, code.co_flags)
    return _digest(f"{place} {describe_code(code)} {values} {annotations}\n{''.join(lines)}")


def _describe(value: object) -> str:
    """What reading a function makes of a value that one of its names has; raises `_Unknown`."""
    try:
        return _describe_value(value)
    except Exception as error:  # of the value's own methods, too
        raise error if isinstance(error, _Unknown) else _Unknown(f"a {type(value).__qualname__}") from error


def _describe_value(value: object) -> str:
    kind = type(value)
    if value is None:
        return "nothing"
    if isinstance(value, (str, numbers.Number, np.generic)):
        return f"{kind.__name__} {write_number(value)}"
    if (elements := find_numbers(value)) is not None:
        return f"{kind.__name__} {elements!r}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, (type, types.BuiltinFunctionType, np.ufunc)) or (
        isinstance(value, types.FunctionType) and not is_own_function(value)
    ):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    live = _find_live(value)
    described = None if live is None else _describe_function(live)
    if kind is types.FunctionType and described is not None:
        return f"function {described}"
    if kind.__module__.startswith("polyc."):
        if kind.__name__ == "Index":
            return f"index {value.name}"  # type: ignore[attr-defined]
        if kind.__name__ in ("ElementType", "_Where"):
            return repr(value)
        if kind.__name__ == "UserMonoid" and described is not None:
            return f"monoid {value.name} {[(type(n).__name__, write_number(n)) for n in value.identity]} {described}"  # type: ignore[attr-defined]
        if kind.__name__ == "Operator" and value.has_rules:  # type: ignore[attr-defined]
            raise _Unknown("an operator with a derivative of its own")
        if kind.__name__ == "Operator" and described is not None:
            return f"operator {value.name} {value.input_names!r} {described}"  # type: ignore[attr-defined]
    if callable(value) or hasattr(value, "formals"):
        raise _Unknown(f"a {kind.__qualname__}")
    return f"a {kind.__module__}.{kind.__qualname__}"


Names = list[tuple[int | None, str, str, dict[str, tuple[str, int | None]]]]
"""For each function that was read: by which name in which of those before it, its description, and that of its names, with the
number of the function that one stands for."""


def _describe_names(root: types.FunctionType | None, texts: Sequence[Any]) -> Names:
    """What names meant in what was read (`FunctionText`); raises `_Unknown`."""
    seen: dict[int, dict[str, object]] = {}
    for text in texts:
        if text.function is not None:
            seen.setdefault(id(text.function), {}).update(text.seen)
    if root is None or id(root) not in seen:
        return []
    found: Names = [(None, "", "", {})]
    functions, known = [root], {id(root): 0}
    for n, function in enumerate(functions):  # grows meanwhile
        for name, value in seen[id(function)].items():
            live = _find_live(value)
            if live is not None and id(live) in seen and id(live) not in known:
                known[id(live)] = len(functions)
                functions.append(live)
                found.append((n, name, _describe_function(live) or "", {}))
            found[n][3][name] = _describe(value), None if live is None else known.get(id(live))
    if len(functions) < len(seen):
        raise _Unknown("the way to a function")
    return found


def _find_change(root: types.FunctionType, names: Names) -> str | None:
    """A name that means something else than it did; None where there is none."""
    functions = [root]
    for owner, via, described, _ in names[1:]:
        live = _find_live(look_up(functions[owner or 0], via))
        if live is None or _describe_function(live) != described:
            return via
        functions.append(live)
    for function, (*_, meanings) in zip(functions, names, strict=False):
        for name, (meaning, number) in meanings.items():
            value = look_up(function, name)
            try:
                # Two names of one function may be those of two by now: with the same code, in which names mean other things.
                if _describe(value) != meaning or (number is not None and _find_live(value) is not functions[number]):
                    return name
            except _Unknown:
                return name
    return None
