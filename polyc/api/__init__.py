"""The public interface: operators and the functions that make them."""

from polyc.api.einops import rearrange, reduce, repeat
from polyc.api.functions import compile, einsum, einsum_operator, indices, op
from polyc.api.monoids import monoid
from polyc.api.operator import Operator

__all__ = ["Operator", "compile", "einsum", "einsum_operator", "indices", "monoid", "op", "rearrange", "reduce", "repeat"]
