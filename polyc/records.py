"""Dataclasses that are cheap to declare, to make, to compare and to copy: `dataclass` and `replace`, as in `dataclasses`.

Python compiles up to six functions for each dataclass when its module is imported, a third of a millisecond, and the
``__init__`` of a frozen one asks ``object.__setattr__`` for each field, which looks the field up by name each time.  Here
fields are looked at when somebody asks for them, and a function is compiled when it is called, that which makes or copies
records after a number of calls; ``__init__`` fills the slots by itself.  That is a fraction of the time to import what polyc
consists of, and half of the time for each node of a tree.  What is declared
otherwise than with ``slots=True`` (with or without ``frozen`` and ``eq``) is a dataclass of Python's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from reprlib import recursive_repr
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
        annotations = cls.__annotations__
        is_known = options.get("slots") and options.keys() <= {"frozen", "slots", "eq"}
        if not is_known or any(type(a) is not str or a.startswith(_NO_FIELDS) for a in annotations.values()):
            return dataclasses.dataclass(cls, **options)
        return _declare(cls, annotations, options.get("frozen", False), options.get("eq", True))

    def replace(value: T, /, **changes: Any) -> T:
        """`dataclasses.replace`, in a third of the time for what is frozen."""
        change = getattr(value, "__replace__", None)
        return dataclasses.replace(value, **changes) if change is None else change(**changes)


_NO_FIELDS = ("ClassVar", "typing.ClassVar", "InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")


def _declare(cls: Any, annotations: Mapping[str, str], is_frozen: bool, has_equality: bool) -> Any:
    """The class with slots, and stand-ins for its functions, which are written when they are first called."""
    body = dict(cls.__dict__)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    values = {name: body.pop(name, MISSING) for name in annotations}
    mutable = next((name for name, value in values.items() if type(value).__hash__ is None), None)
    if mutable is not None:
        raise ValueError(f"all records would share the default of {mutable}: use default_factory")
    inherited = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    body["__slots__"] = tuple(name for name in annotations if name not in inherited)
    body["__qualname__"] = cls.__qualname__
    body["__dataclass_fields__"] = _Fields(annotations, values)
    body["__dataclass_params__"] = _PARAMETERS
    body["__signature__"] = _SIGNATURE
    if "__match_args__" not in body:
        given = getattr(cls, "__match_args__", ())
        own = (n for n, v in values.items() if n not in given and not (isinstance(v, Field) and not v.init))
        body["__match_args__"] = (*given, *own)
    body.setdefault("__repr__", _show)
    wanted = [name for name in ("__init__", "__replace__") if name not in body]
    if is_frozen:
        body |= {
            "__setattr__": _refuse_change,
            "__delattr__": _refuse_deletion,
            "__getstate__": _state,
            "__setstate__": _set_state,
        }
    if has_equality:
        writes_hash = body.get("__hash__") is not None
        if "__eq__" not in body:
            wanted.append("__eq__")
        if not writes_hash:
            body["__hash__"] = None
            wanted += ["__hash__"] if is_frozen else []
    home: list[Any] = []
    body |= {name: _stand_in(home, name) for name in wanted}
    home.append(type(cls)(cls.__name__, cls.__bases__, body))
    return home[0]


class _Fields:
    """What `dataclasses.fields` looks at, in the place of which it is put when somebody does."""

    def __init__(self, annotations: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self._annotations, self._values = annotations, values

    def __get__(self, instance: object, owner: Any) -> dict[str, Field[Any]]:
        home = next((c for c in owner.__mro__ if c.__dict__.get("__dataclass_fields__") is self), None)
        if home is None:  # another thread has found them since
            return owner.__dataclass_fields__  # type: ignore[no-any-return]
        found: dict[str, Field[Any]] = {}
        for base in home.__mro__[-1:0:-1]:
            found |= getattr(base, "__dataclass_fields__", {})
        for name, annotation in self._annotations.items():
            value = self._values[name]
            own = value if isinstance(value, Field) else dataclasses.field(default=value)
            own.name, own.type, own.kw_only = name, annotation, False
            own._field_type = dataclasses._FIELD  # type: ignore[attr-defined, union-attr]
            found[name] = own
        home.__dataclass_fields__ = found
        return found


CALLS_BEFORE_COMPILING = 16
"""Records that are made, and copied, field by field before a function is compiled for it, which takes as long as 40 of them."""


def _stand_in(home: list[Any], name: str) -> Callable[..., Any]:
    """The function `name` of a class (`home` will hold it) until it is worth compiling.

    A call that is not as it should be goes to what is compiled, which raises what Python raises."""
    step = _STEPS.get(name)
    n_calls, known = 0, None

    def write_and_call(self: Any, /, *args: Any, **named: Any) -> Any:
        nonlocal n_calls, known
        cls = home[0]
        n_calls += 1
        if step is not None and n_calls <= CALLS_BEFORE_COMPILING:
            known = known or [(f.name, getattr(cls, f.name), f) for f in fields(cls)]
            found = step(cls, known, self, args, named)
            if found is not MISSING:
                return found
        function = _compile(cls, name)
        setattr(cls, name, function)
        return function(self, *args, **named)

    return write_and_call


Known = list[tuple[str, Any, Field[Any]]]
"""Names of fields, their slots, and what is said of them."""


def _fill(cls: Any, known: Known, self: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """As what `_write_init` writes; MISSING where the arguments are not those of the fields."""
    n_named, values = 0, []
    rest = iter(args)
    for name, slot, f in known:
        value: Any = next(rest, MISSING) if f.init else MISSING
        if value is MISSING and f.init and name in named:
            value, n_named = named[name], n_named + 1
        if value is MISSING:
            make: Any = f.default_factory
            value = f.default if make is MISSING else make()
            if value is MISSING and f.init:
                return MISSING
        if value is not MISSING:
            values.append((slot, value))
    if n_named < len(named) or next(rest, MISSING) is not MISSING:
        return MISSING
    for slot, value in values:
        slot.__set__(self, value)
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return None


def _copy(cls: Any, known: Known, self: Any, args: tuple[Any, ...], changes: dict[str, Any]) -> Any:
    """As what `_write_replace` writes; MISSING where that is something else, or the changes are not of the fields."""
    if args or hasattr(cls, "__post_init__") or not all(f.init for _, _, f in known):
        return MISSING
    if not changes.keys() <= {name for name, _, _ in known}:
        return MISSING
    new = object.__new__(cls)
    for name, slot, _ in known:
        slot.__set__(new, changes[name] if name in changes else slot.__get__(self))
    return new


_STEPS = {"__init__": _fill, "__replace__": _copy}


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


_SIGNATURE = _InitSignature()


class _Plain:
    """It has no fields."""


_PARAMETERS = dataclasses.dataclass(init=False, repr=False, eq=False)(_Plain).__dataclass_params__  # type: ignore[attr-defined]

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


@recursive_repr("...")
def _show(self: Any) -> str:
    parts = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"
