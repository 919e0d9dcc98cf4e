"""Loading `polyc_call`, the function that `calls.py` writes: what it needs of the interpreter, and what it exports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from polyc.codegen.objects.loader import map_object

PYTHON_FUNCTIONS = (
    "PyByteArray_AsString Py_IncRef Py_DecRef PyObject_CallObject PyObject_CallFunction PyLong_AsLongLong "
    "PyLong_AsLongLongAndOverflow PyFloat_AsDouble "
    "PyErr_Occurred PyEval_SaveThread PyEval_RestoreThread PyThread_get_thread_ident PyTuple_New "
    "PyTuple_SetItem PyObject_GetAttr PyObject_Vectorcall PyTuple_Size PyTuple_GetItem"
).split()
"""What `IR` calls."""
PYTHON_OBJECTS = "PyArray_Type Py_None PyFloat_Type PyLong_Type PyArray_Empty name_doors name_slow name_out".split()
"""Objects whose addresses `IR` knows, and the function of NumPy's that it calls."""

EXPORTS = ("polyc_call", "polyc_call_object", "polyc_probe", "polyc_probe_workspace")
_NUMBERS = itertools.count()


def _make() -> bytes:
    from polyc.codegen.objects.calls import make_call

    return make_call()


_source: list[Callable[[], bytes]] = [_make]


def use_source(source: Callable[[], bytes]) -> None:
    """Take the object code from `source` (a cache in front of `make_call`) from now on."""
    _source[0] = source


def load_call(symbols: Mapping[str, int]) -> tuple[dict[str, int], object]:
    """Addresses of `EXPORTS`, and what keeps them valid.  `symbols`: addresses of `PYTHON_FUNCTIONS` and `PYTHON_OBJECTS`.

    Raises RuntimeError where LLVM cannot make or link it."""
    code = _source[0]()
    mapped = map_object(code, symbols)
    if mapped is not None and all(name in mapped.addresses for name in EXPORTS):
        return mapped.addresses, mapped
    import llvmlite.binding as llvm

    from polyc.codegen.objects import jit

    with jit.locked_session() as session:
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        for name in (*PYTHON_FUNCTIONS, *PYTHON_OBJECTS):
            builder.import_symbol(name, symbols[name])
        for name in EXPORTS:
            builder.export_symbol(name)
        tracker = builder.link(session, f"polyc_call.{next(_NUMBERS)}")
        return {name: tracker[name] for name in EXPORTS}, tracker
