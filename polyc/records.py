"""Dataclasses that are cheap to declare, to make, to compare and to copy: `dataclass` and `replace`, as in `dataclasses`.

Python compiles six functions for each frozen dataclass when its module is imported, a third of a millisecond, and its
``__init__`` asks ``object.__setattr__`` for each field, which looks the field up by name each time.  Here each function is
compiled when it is first called, and fills the slots by itself: half of the time to import what polyc
consists of, and half of the time for each node of a tree.  What is declared otherwise than ``(frozen=True, slots=True)`` (with
or without ``eq=False``), is a dataclass of Python's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


class Hashed:
    """Base of nodes of trees, whose hash is that of all below: each remembers its own."""

    __slots__ = ("_hash",)
    _hash: int


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(cls: type[T] | None = None, /, **options: Any) -> Any:
        """`dataclasses.dataclass`; see the module."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if not options.get("frozen") or not options.get("slots") or not options.keys() <= {"frozen", "slots", "eq"}:
            return dataclasses.dataclass(cls, **options)
        return _declare(cls, has_equality=options.get("eq", True))

    def replace(value: T, /, **changes: Any) -> T:
        """`dataclasses.replace`, in a third of the time for what is frozen."""
        change = getattr(value, "__replace__", None)
        return dataclasses.replace(value, **changes) if change is None else change(**changes)


def _declare(cls: Any, has_equality: bool) -> Any:
    """The class with slots, and stand-ins for its functions, which are written when they are first called."""
    own = cls.__dict__
    has_hash = own.get("__hash__") is not None
    wanted = ["__init__", "__replace__"]
    if has_equality:
        wanted += [name for name, is_there in (("__eq__", "__eq__" in own), ("__hash__", has_hash)) if not is_there]
    has_words = bool(cls.__doc__)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else Python asks for the signature of what has none yet
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    if not has_words:
        cls.__doc__ = None
    cls.__setattr__, cls.__delattr__ = _refuse_change, _refuse_deletion
    cls.__getstate__, cls.__setstate__ = _state, _set_state
    if "__repr__" not in own:
        cls.__repr__ = _show
    for name in wanted:
        setattr(cls, name, _stand_in(cls, name))
    cls.__signature__ = _InitSignature()
    return cls


def _stand_in(cls: Any, name: str) -> Callable[..., Any]:
    """The function `name` of a class until it is called for the first time."""

    def write_and_call(self: Any, /, *args: Any, **named: Any) -> Any:
        function = _compile(cls, name)
        setattr(cls, name, function)
        return function(self, *args, **named)

    return write_and_call


def _compile(cls: Any, name: str) -> Callable[..., Any]:
    lines, names = _WRITERS[name](cls, fields(cls))
    exec("\n".join(lines), names)
    function: Any = names[name]
    function.__qualname__, function.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return function  # type: ignore[no-any-return]


class _InitSignature:
    """What `inspect.signature` and `help` show of a class, whether or not one was made."""

    def __get__(self, instance: object, owner: Any) -> Any:
        if instance is not None:
            raise AttributeError("__signature__")
        import inspect

        found = inspect.signature(_compile(owner, "__init__"))
        return found.replace(parameters=list(found.parameters.values())[1:])


Written = tuple[list[str], dict[str, Any]]
"""The lines of a function, and what its names mean."""


def _write_init(cls: Any, own: tuple[Field[Any], ...]) -> Written:
    names: dict[str, Any] = {"missing": MISSING}
    parameters, fill = [], []
    for n, f in enumerate(own):
        names[f"put{n}"] = getattr(cls, f.name).__set__
        default, value = "", f.name
        if f.default is not MISSING:
            names[f"default{n}"] = f.default
            default = f"=default{n}"
        elif f.default_factory is not MISSING:
            names[f"make{n}"] = f.default_factory
            default, value = "=missing", f"make{n}() if {f.name} is missing else {f.name}"
        if f.init:
            parameters.append(f.name + default)
        elif default:
            value = f"default{n}" if f.default is not MISSING else f"make{n}()"
        if f.init or default:
            fill.append(f" put{n}(self, {value})")
    if hasattr(cls, "__post_init__"):
        fill.append(" self.__post_init__()")
    return [f"def __init__(self, {', '.join(parameters)}):", *(fill or [" pass"])], names


def _write_replace(cls: Any, own: tuple[Field[Any], ...]) -> Written:
    """For `replace`: a copy that does not go through the arguments one by one."""
    if not own or hasattr(cls, "__post_init__") or not all(f.init for f in own):
        return ["def __replace__(self, /, **changes):", " return change(self, **changes)"], {"change": dataclasses.replace}
    names = {"cls": cls, "make": object.__new__, "kept": MISSING}
    names |= {f"put{n}": getattr(cls, f.name).__set__ for n, f in enumerate(own)}
    head = f"def __replace__(self, /, *, {', '.join(f'{f.name}=kept' for f in own)}):"
    copies = [f" put{n}(new, self.{f.name} if {f.name} is kept else {f.name})" for n, f in enumerate(own)]
    return [head, " new = make(cls)", *copies, " return new"], names


def _write_eq(cls: Any, own: tuple[Field[Any], ...]) -> Written:
    """Without tuples of the fields.  Equal for these is what is the same object, too: a NaN."""
    same = [f"(self.{f.name} is other.{f.name} or self.{f.name} == other.{f.name})" for f in own if f.compare]
    lines = [" if self is other: return True", " if other.__class__ is not cls: return NotImplemented"]
    return ["def __eq__(self, other):", *lines, f" return {' and '.join(same) or 'True'}"], {"cls": cls}


def _write_hash(cls: Any, own: tuple[Field[Any], ...]) -> Written:
    kept = "".join(f"self.{f.name}, " for f in own if (f.compare if f.hash is None else f.hash))
    if not issubclass(cls, Hashed):
        return ["def __hash__(self):", f" return hash(({kept}))"], {}
    known = [" try: return self._hash", " except AttributeError: value = hash((" + kept + "))"]
    return ["def __hash__(self):", *known, " put(self, value)", " return value"], {"put": Hashed.__dict__["_hash"].__set__}


_WRITERS = {"__init__": _write_init, "__replace__": _write_replace, "__eq__": _write_eq, "__hash__": _write_hash}


def _refuse_change(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _show(self: Any) -> str:
    parts = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"
