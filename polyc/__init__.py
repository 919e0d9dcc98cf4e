"""A polyhedral auto-scheduling compiler for tensor operators written in Einstein notation.

Say what is computed; polyc decides how::

    @polyc.op
    def linear_relu(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]"):
        H[m, n] += X[m, k] * W[n, k]                 # k is not on the left: it is summed
        Y[m, n] = max(H[m, n] + b[n], 0)
        return Y

    y = linear_relu(x, w, b)                         # NumPy (or any DLPack array) in, NumPy out

`compile` does the same for ``.tc`` text and files, `einsum` is a drop-in for `numpy.einsum`, and `rearrange`, `reduce` and
`repeat` for those of einops.  ``op.explain(x, w, b)`` of an `Operator` says what was decided, ``op.bind(W=w)`` keeps an input,
and `Options` lists what can be changed.  `polyc.onnx` runs models, ``polyc --help`` is the command line, and errors are
subclasses of `PolycError`, each with a code that docs/errors.md explains.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyc import memory as memory
    from polyc import onnx as onnx
    from polyc.api.check_grad import GradientCheck, check_grad
    from polyc.api.einops import rearrange, reduce, repeat
    from polyc.api.functions import compile, einsum, einsum_operator, indices, op
    from polyc.api.gradients import grad, jvp, value_and_grad, vjp
    from polyc.api.monoids import monoid
    from polyc.api.names import bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, where
    from polyc.api.operator import Operator
    from polyc.config import VERSION as __version__
    from polyc.config import Options
    from polyc.diagnostics import (
        ArgumentError,
        ArgumentOverflowError,
        ArgumentTypeError,
        BoundsError,
        CompileBudgetError,
        Diagnostic,
        InternalError,
        PolycError,
        PolycWarning,
        RangeError,
        Remark,
        SemanticError,
        SyntaxErrorInSource,
        UnsupportedError,
    )
    from polyc.driver import Index, Lowered
    from polyc.runtime.kernel import Kernel
    from polyc.runtime.threads import get_num_threads, set_num_threads

# Names are imported at their first use, so that the command line can answer Ctrl-C before modules are read (`polyc.__main__`),
# and isl and LLVM, which the driver brings, only when something is compiled.
_HOMES = {
    "polyc.api.check_grad": "GradientCheck check_grad",
    "polyc.api.einops": "rearrange reduce repeat",
    "polyc.api.functions": "compile einsum einsum_operator indices op",
    "polyc.api.gradients": "grad jvp value_and_grad vjp",
    "polyc.api.monoids": "monoid",
    "polyc.api.operator": "Operator",
    "polyc.api.names": "bf16 bool_ c64 c128 f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 where",
    "polyc.config": "Options",
    "polyc.diagnostics": "ArgumentError ArgumentOverflowError ArgumentTypeError BoundsError CompileBudgetError Diagnostic "
    "InternalError PolycError PolycWarning RangeError Remark SemanticError SyntaxErrorInSource UnsupportedError",
    "polyc.driver": "Index Lowered",
    "polyc.runtime.kernel": "Kernel",
    "polyc.runtime.threads": "get_num_threads set_num_threads",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ArgumentError",
    "ArgumentOverflowError",
    "ArgumentTypeError",
    "BoundsError",
    "CompileBudgetError",
    "Diagnostic",
    "GradientCheck",
    "Index",
    "InternalError",
    "Kernel",
    "Lowered",
    "Operator",
    "Options",
    "PolycError",
    "PolycWarning",
    "RangeError",
    "Remark",
    "SemanticError",
    "SyntaxErrorInSource",
    "UnsupportedError",
    "__version__",
    "bf16",
    "bool_",
    "c64",
    "c128",
    "check_grad",
    "compile",
    "einsum",
    "einsum_operator",
    "f16",
    "f32",
    "f64",
    "get_num_threads",
    "grad",
    "i8",
    "i16",
    "i32",
    "i64",
    "indices",
    "jvp",
    "memory",
    "monoid",
    "op",
    "rearrange",
    "reduce",
    "repeat",
    "set_num_threads",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "vjp",
    "where",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("polyc.config").VERSION
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"polyc.{name}") is not None:
        return importlib.import_module(f"polyc.{name}")
    else:
        raise AttributeError(f"module 'polyc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Who asks for all that stands here (`help`, completion) must not meet a package that is not installed.
    return sorted({*globals(), *__all__, *(("onnx",) if importlib.util.find_spec("onnx") else ())})
