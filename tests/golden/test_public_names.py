"""What docs/stability.md promises: public names with their signatures, and what C programs call.

After a change that is meant to change them: ``pytest tests/golden --update-golden``, then read the difference, and
docs/stability.md for what has to be said in CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import polyc
from tests.golden.compare import compare_golden

MADE_BY_POLYC = {
    "Operator": "__call__ name input_names size_names options program remarks bind specialize lower explain measure "
    "vjp jvp grad value_and_grad jacobian defvjp defjvp",
    "Kernel": "__call__ name",
    "Lowered": "as_text explain compile c_header object_code",
    "Session": "run get_inputs get_outputs get_overridable_initializers get_modelmeta io_binding run_with_iobinding profile "
    "remarks",
    "Profile": "entries runs n_threads seconds chrome_trace save",
}
"""Public members of classes that users get from polyc and do not make; nothing else of them, their constructors too."""
MATRIX_PRODUCT = "def mm(float(M, K) A, float(K, N) B) -> (C) {\n  C(m, n) +=! A(m, k) * B(k, n)\n}\n"


def describe(name: str, value: Any) -> Iterator[str]:
    """``name(signature)``, and below it the members of a class or module."""
    if isinstance(value, types.ModuleType):
        yield f"module {name}"
        for member in sorted(value.__all__):
            yield from _below(describe(member, getattr(value, member)))
    elif not isinstance(value, type):
        yield f"{name}{_signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"
    elif name in MADE_BY_POLYC:
        yield f"class {name}"
        yield from _members(value, MADE_BY_POLYC[name].split())
    else:
        bases = ", ".join(b.__name__ for b in value.__bases__ if b is not object)
        known = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        is_made = value.__init__ is not object.__init__ and not issubclass(value, enum.Enum)
        yield f"class {name}({bases}){f': {_signature(value)}' if is_made else ''}"
        if not issubclass(value, BaseException) or value is polyc.PolycError:
            yield from _members(value, [n for n in vars(value) if not n.startswith("_") and n not in known])


def _members(owner: type, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        found = inspect.getattr_static(owner, name, None)
        member = getattr(owner, name, None)
        if inspect.isroutine(member):
            yield f"    {name}{_signature(member)}"
        elif found is not None or name in getattr(owner, "__annotations__", {}):
            yield f"    {name}"
        else:
            pytest.fail(f"{owner.__name__} has no {name}: docs/stability.md promises it")


def _signature(called: Any) -> str:
    """Names, kinds and defaults of the parameters: annotations are no promise."""
    found = inspect.signature(called)
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name != "self"]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def _below(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def test_public_names(pytestconfig: pytest.Config) -> None:
    lines = [line for name in polyc.__all__ for line in describe(name, getattr(polyc, name))]
    compare_golden("public/polyc.txt", "\n".join(lines), pytestconfig)


def test_public_names_of_models(pytestconfig: pytest.Config) -> None:
    onnx = pytest.importorskip("polyc.onnx")
    compare_golden("public/polyc.onnx.txt", "\n".join(describe("polyc.onnx", onnx)), pytestconfig)


def test_c_interface(pytestconfig: pytest.Config) -> None:
    lowered = polyc.compile(MATRIX_PRODUCT, target="x86-64-v3").lower()
    compare_golden("public/mm.h", lowered.c_header(), pytestconfig)
