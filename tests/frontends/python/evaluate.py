"""Run a decorated-style function through the reference interpreter, and read the errors of a source string."""

import textwrap

import numpy as np
import pytest

from polyc.diagnostics import PolycError
from polyc.frontends.python import read_function, read_signature
from polyc.ir.interpret import interpret
from polyc.ir.types import from_numpy
from polyc.ir.verify import verify_program


def run(function, *arrays, **constants):
    """Results in the order of the returns (one alone, not in a tuple)."""
    arrays = [np.asarray(a) for a in arrays]
    names = [p.name for p in read_signature(function, constants or None).parameters]
    dtypes = {n: (from_numpy(a.dtype), a.ndim) for n, a in zip(names, arrays, strict=True)}
    program = read_function(function, dtypes, constants or None).program
    verify_program(program)
    results = interpret(program, dict(zip(names, arrays, strict=True)))
    values = [results[r.name] for r in program.returns]
    return values[0] if len(values) == 1 else tuple(values)


def run_body(body, *arrays, parameters=None):
    """`run` for the lines of a body over parameters ``X, Y, Z`` without annotations."""
    names = parameters or ", ".join("XYZ"[: len(arrays)])
    return run(f"def f({names}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n    return R\n", *arrays)


def errors_of(source, dtypes=None, constants=None):
    """The diagnostics of a text that must be refused; each must show an excerpt, a caret and a way out."""
    with pytest.raises(PolycError) as caught:
        read_function(textwrap.dedent(source), dtypes, constants)
    for diagnostic in caught.value.diagnostics:
        text = diagnostic.render()
        assert diagnostic.span is not None and "^" in text and "help:" in text, text
    return caught.value.diagnostics
