"""Planned calls without Python in between: tables that compiled code searches by the layout of its arguments.

`polyc_call` (`codegen/objects/calls.py`) reads two tables of machine words. *Slots*: the number of slots less one, then per
slot a hash and the address of a record, or 0. *Record*: `call_layout.RECORD`. Tables change only under the GIL, and
`polyc_call` reads them only under the GIL and before it runs anything else; while a call runs it holds a reference to the
record's owner.

Where the interpreter or NumPy is not laid out as expected (another Python than CPython, one without a GIL, a NumPy of other
structures), where a symbol is missing, or where the self-test (`call_self_test`) fails, there are no such tables and planned
calls go through Python: several times slower, and no different otherwise.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polyc.call_layout import ALLOCATOR, BOUND, DOORS, MAX_ADDRESSES, MAX_ARRAYS, MAX_WORDS, RECORD, TABLE
from polyc.records import dataclass
from polyc.runtime import memory, threads
from polyc.runtime.arrays import alias_pattern, data_address
from polyc.runtime.plan import Plan
from polyc.runtime.scalar_tables import NumberRange, has_scalar_layout, make_number_table, make_type_table

Loader = Callable[[Mapping[str, int]], tuple[dict[str, int], object]]
"""Compiles `polyc_call`: from the addresses of what it needs to those of what it exports, and what keeps these valid."""

_MASK = 2**64 - 1
_FASTCALL, _KEYWORDS = 0x80, 0x2
"""METH_FASTCALL, of the stable ABI: ``PyObject *f(PyObject *self, PyObject *const *args, Py_ssize_t nargs)``; METH_KEYWORDS:
and a tuple of names, or NULL."""
_NAMES = {
    name: sys.intern(text) for name, text in (("name_doors", "_doors"), ("name_slow", "_call_slowly"), ("name_out", "out"))
}
"""Of attributes and of an argument, as compiled code knows them: interned."""


class _MethodDef(ctypes.Structure):
    """PyMethodDef, of the stable ABI."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class Native:
    """The loaded code.  Functions made of `method` point into it: it is never dropped."""

    exports: dict[str, int]
    keepalive: object
    method: _MethodDef
    methods: list[_MethodDef] = field(default_factory=list)


class _State:
    native: Native | None = None
    offer: tuple[Sequence[str], Loader] | None = None
    was_offered: bool = False

    def __init__(self) -> None:
        self.answered: list[type] = []


_state = _State()


def offer(symbol_names: Sequence[str], load: Loader) -> None:
    """How to get `polyc_call`, once it is wanted; `symbol_names` are the functions of CPython that it calls."""
    if not _state.was_offered:
        _state.offer, _state.was_offered = (symbol_names, load), True


def is_available() -> bool:
    """Whether there is `polyc_call`.  It is compiled and tested, in some milliseconds, the first time that somebody asks;
    threads that ask meanwhile are told no."""
    offered, _state.offer = _state.offer, None
    if offered is not None:
        try:
            _state.native = _load(*offered) if _is_laid_out_as_expected() else None
            if _state.native is not None:
                for cls in _state.answered:
                    answer(_state.native, cls)
        except Exception:  # a symbol is missing, or the code cannot be linked or does not do what it should: we do without
            _state.native = None
    return _state.native is not None


def answer_calls(cls: type) -> None:
    """Let compiled code be `cls.__call__`, once there is any, for objects with a bytearray `_doors` (`Doors.words`).
    What it does not know it gives to the method `_call_slowly`."""
    _state.answered.append(cls)
    if _state.native is not None:
        answer(_state.native, cls)


def answer(native: Native, cls: Any) -> None:
    code = cls._call_slowly.__code__
    inputs = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    text = f"__call__($self, /, *{inputs}, out=None, **named)\n--\n\n{cls._call_slowly.__doc__}"
    method = _MethodDef(b"__call__", native.exports["polyc_call_object"], _FASTCALL | _KEYWORDS, text.encode())
    native.methods.append(method)  # what is made of it points to it
    new_method = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(("PyDescr_NewMethod", ctypes.pythonapi))
    cls.__call__ = new_method(cls, ctypes.addressof(method))


def _load(symbol_names: Sequence[str], load: Loader) -> Native | None:
    exports, keepalive = load(symbols(symbol_names))
    method = _MethodDef(
        b"polyc_call", exports["polyc_call"], _FASTCALL, b"Run the planned call for these arrays; None: there is none."
    )
    native = Native(exports, keepalive, method)
    from polyc.runtime.call_self_test import passes_self_test  # it makes tables and answers calls as this module does

    return native if passes_self_test(native) else None


def symbols(names: Sequence[str]) -> dict[str, int]:
    """Addresses of functions of the interpreter, and of the objects that `polyc_call` knows."""
    functions = {name: _address(getattr(ctypes.pythonapi, name)) for name in names}
    objects = {"PyArray_Type": np.ndarray, "Py_None": None, "PyFloat_Type": float, "PyLong_Type": int}
    known = {name: id(value) for name, value in (objects | _NAMES).items()}
    return {**functions, **known, "PyArray_Empty": _numpy_function(184)}


def _numpy_function(position: int) -> int:
    """Address of the function at `position` of NumPy's table of them, which is the same for all versions."""
    core = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    capsule = sys.modules[f"{core}._multiarray_umath"]._ARRAY_API
    open_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return ctypes.c_int64.from_address(open_capsule(capsule, None) + 8 * position).value


def _address(function: Any) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value
    if value is None:
        raise AttributeError("a function of the interpreter has no address")
    return value


def _is_laid_out_as_expected() -> bool:
    """Whether objects are CPython's with a GIL, and arrays and element types have their fields where they are expected."""
    if (
        sys.implementation.name != "cpython"
        or "t" in getattr(sys, "abiflags", "")  # of an interpreter without a GIL
        or ctypes.sizeof(ctypes.c_void_p) != 8
    ):
        return False
    if np.ndarray.__basicsize__ < 72 or sys.byteorder != "little":
        return False
    readonly = np.arange(24, dtype=np.int16).reshape(2, 3, 4)[::-1, :, ::2]
    readonly.flags.writeable = False
    samples = [np.zeros((), np.float64), np.zeros((5, 0), np.bool_), readonly, np.zeros(9, np.uint8)[1:].view(np.float32)]
    return all(_has_expected_fields(a) for a in samples) and has_scalar_layout()


def _has_expected_fields(array: np.ndarray) -> bool:
    at, word, integer = id(array), ctypes.c_int64.from_address, ctypes.c_int32.from_address
    n = array.ndim
    if word(at + 8).value != id(np.ndarray) or integer(at + 24).value != n or word(at + 16).value != data_address(array):
        return False
    flags = integer(at + 64).value
    if bool(flags & 0x100) != array.flags.aligned or bool(flags & 0x400) != array.flags.writeable:
        return False
    if word(at + 56).value != id(array.dtype):
        return False
    for place, expected in ((32, array.shape), (40, array.strides)):
        if n and tuple((ctypes.c_int64 * n).from_address(word(at + place).value)) != expected:
            return False
    kind_and_code = ctypes.string_at(id(array.dtype) + 24, 2)
    return (
        kind_and_code == f"{array.dtype.kind}{array.dtype.char}".encode()
        and integer(id(array.dtype) + 28).value == array.dtype.num
    )


def _type_word(dtype: np.dtype) -> int:
    """What tells an element type: the word around its number for NumPy's own, else the address of the object."""
    is_own = dtype.num <= 12 or dtype.num == 23
    return ctypes.c_int64.from_address(id(dtype) + 24).value if is_own else id(dtype)


def _key_words(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The words that `polyc_call` makes of these arguments."""
    aliases = alias_pattern([data_address(a) for a in inputs], [data_address(a) for a in outputs])
    words: list[int] = []
    for position, array in enumerate((*inputs, *outputs)):
        words += (_type_word(array.dtype), array.ndim)
        for extent, stride in zip(array.shape, array.strides, strict=True):
            words += (extent, stride)
        if position >= len(inputs):
            words.append(aliases[position - len(inputs)])
    return tuple(words)


def _hash_words(words: Sequence[int]) -> int:
    value = 14695981039346656037
    for word in words:
        value = (value ^ (word & _MASK)) * 1099511628211 & _MASK
        value ^= value >> 29
    return value


class _Record:
    """A plan as `polyc_call` reads it; the `owner` of everything that the words point to."""

    def __init__(self, plan: Plan, key: tuple[int, ...], dtypes: tuple[np.dtype, ...]) -> None:
        self.plan = plan
        self.dtypes = dtypes  # their addresses are in the key
        self.words = (ctypes.c_int64 * len(key))(*key)
        self.bounds = (ctypes.c_int64 * (2 * len(plan.bounds)))(*(end for pair in plan.bounds for end in pair))
        self.constants = (ctypes.c_int64 * len(plan.constant_addresses))(*plan.constant_addresses)
        allocated = [a for a in plan.allocate if a is not None]
        self.functions = [None if memory.is_small(*a) else memory.make_allocator(*a) for a in allocated]
        self.extents = [(ctypes.c_int64 * len(shape))(*shape) for shape, _ in allocated]
        # Of each result: the function that makes it, 0 for NumPy's own; its rank, extents and element type.
        self.allocators = (ctypes.c_int64 * (len(ALLOCATOR) * len(allocated)))(
            *itertools.chain.from_iterable(
                (0 if function is None else id(function), len(shape), ctypes.addressof(extents), id(dtype))
                for function, extents, (shape, dtype) in zip(self.functions, self.extents, allocated, strict=True)
            )
        )
        self.result_types = [dtype for _, dtype in allocated]
        self.team, self.place, self.fail = threads.team_size, memory.workspace_address, plan.raise_bounds_error
        fields = {
            "n_words": len(key),
            "words": ctypes.addressof(self.words),
            "misaligned": plan.misaligned,
            "bounds": ctypes.addressof(self.bounds),
            "owner": id(self),
            "touched": ctypes.addressof(plan.touched),
            "n_constants": len(plan.constant_addresses),
            "constants": ctypes.addressof(self.constants),
            "n_allocated": len(self.functions),
            "allocators": ctypes.addressof(self.allocators),
            "team": id(self.team) if plan.is_parallel else 0,
            "block": plan.block_address,
            "workspace": _address(plan.workspace),
            "place": id(self.place),
            "entry": _address(plan.entry),
            "fail": id(self.fail),
            "known_team": ctypes.addressof(threads.known_team),
            "known_area": ctypes.addressof(memory.known_area),
        }
        self.fields = (ctypes.c_int64 * len(RECORD))(*(fields[name] for name in RECORD))
        self.hash = _hash_words(key)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.fields)


class Doors:
    """Where compiled code finds the tables for calls of an object (`words`), and what is bound of their inputs.

    `bound`: of each input the array that no call gives, or None."""

    def __init__(self, bound: Sequence[np.ndarray | None] = ()) -> None:
        self._bound = tuple(bound)  # their addresses are in the template
        places = [0 if a is None else id(a) for a in self._bound]
        self._template = (ctypes.c_int64 * (len(BOUND) + len(places)))(places.count(0), len(places), *places)
        self.words = bytearray(8 * len(DOORS))
        self._fields = (ctypes.c_int64 * len(DOORS)).from_buffer(self.words)  # from now on the bytearray cannot be moved
        self._fields[DOORS.index("bound")] = ctypes.addressof(self._template) if any(places) else 0

    def open(self, n_outputs: int, table: CallTable) -> None:
        """Let calls that give so many results (0 or 1) look into `table`, which the caller keeps."""
        self._fields[n_outputs] = table.address


class CallTable:
    """Plans that `call` finds by itself.  `n_outputs` of its arguments, the last ones, are results.  `numbers`: which numbers
    of Python's each input takes for an array without dimensions.

    ``call(*arrays)`` gives the result (of several a tuple), or None where no plan fits."""

    def __init__(
        self, n_outputs: int, native: Native | None = None, numbers: Sequence[Mapping[type, NumberRange]] = ()
    ) -> None:
        native = native or _state.native
        assert native is not None
        self._records: dict[tuple[int, ...], _Record] = {}
        self._header = bytearray(8 * len(TABLE))
        self._words = (ctypes.c_int64 * len(TABLE)).from_buffer(self._header)  # from now on the bytearray cannot be moved
        self._words[1] = n_outputs
        self._numbers = make_number_table(numbers, _type_word)
        self._words[2], self._words[3] = ctypes.addressof(_scalar_types()), ctypes.addressof(self._numbers)
        self._lock = allocate_lock()
        self._resize(4)
        new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        self.call: Callable[..., Any] = new_function(ctypes.addressof(native.method), self._header, None)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def address(self) -> int:
        """Of the words that compiled code reads."""
        return ctypes.addressof(self._words)

    def read_numbers(self, numbers: Sequence[Mapping[type, NumberRange]]) -> None:
        """Take these numbers from now on, for as many inputs as before."""
        self._numbers[:] = make_number_table(numbers, _type_word)[:]

    def add(self, plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Let calls like this one take `plan`.  Nothing happens where another thread changes the table at the moment, or where
        the call has too many arguments."""
        key = _key_words(inputs, outputs)
        n_given, n_results = len(inputs) + len(outputs), len(plan.allocate)
        if n_given > MAX_ARRAYS or len(key) > MAX_WORDS or n_given + n_results + len(plan.constants) > MAX_ADDRESSES:
            return
        # Never waits: after a fork the lock may be held by a thread that is no more.
        if key in self._records or not self._lock.acquire(blocking=False):
            return
        try:
            record = _Record(plan, key, tuple(a.dtype for a in (*inputs, *outputs)))
            self._records[key] = record
            if 2 * len(self._records) > self._n_slots:
                self._resize(2 * self._n_slots)
            else:
                self._insert(self._slots, record)
        finally:
            self._lock.release()

    def forget(self, is_dropped: Callable[[Plan], bool]) -> None:
        """Drop some plans.  Calls that are running finish."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            before = self._records  # referenced until no slot points there
            self._records = {key: r for key, r in before.items() if not is_dropped(r.plan)}
            self._resize(self._n_slots)
            del before
        finally:
            self._lock.release()

    def _resize(self, n_slots: int) -> None:
        slots = (ctypes.c_int64 * (1 + 2 * n_slots))(n_slots - 1)
        for record in self._records.values():
            self._insert(slots, record)
        self._n_slots = n_slots
        self._words[0] = ctypes.addressof(slots)  # one store: `call` sees the old slots or the new ones
        self._slots = slots

    def _insert(self, slots: Any, record: _Record) -> None:
        mask = slots[0]
        slot = record.hash & mask
        while slots[2 + 2 * slot]:
            slot = (slot + 1) & mask
        slots[1 + 2 * slot] = ctypes.c_int64(record.hash).value
        slots[2 + 2 * slot] = record.address  # last: a slot without an address is empty


@functools.cache
def _scalar_types() -> Any:
    return make_type_table(_type_word)
