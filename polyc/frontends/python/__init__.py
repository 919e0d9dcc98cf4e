"""The decorator's front end: an einsum-style Python function, read from its source, to a Program."""

from polyc.frontends.python.calls import ReadResult
from polyc.frontends.python.names import Index, UserMonoid, indices
from polyc.frontends.python.reader import read_function, read_signature
from polyc.frontends.python.signature import Annotation, Constant, Parameter, PythonSignature

__all__ = [
    "Annotation",
    "Constant",
    "Index",
    "Parameter",
    "PythonSignature",
    "ReadResult",
    "UserMonoid",
    "indices",
    "read_function",
    "read_signature",
]
