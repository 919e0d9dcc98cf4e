"""Reads beside a tensor: which are none, and what other libraries call the borders of `pad`."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.ir.expr import PAD_MODES, Expr, Pad, Read, reads, walk

_ELSEWHERE = {
    **dict.fromkeys(("edge", "replicate", "nearest"), "clamp"),
    **dict.fromkeys(("circular", "periodic"), "wrap"),
    "mirror": "reflect",
    **dict.fromkeys(("constant", "zero", "zeros"), "0"),
}


def is_border_elsewhere(word: str) -> bool:
    """Whether NumPy, SciPy or PyTorch has a border of this name, and polyc has not."""
    return word in _ELSEWHERE


def describe_unknown_border(word: str) -> tuple[str, str]:
    """The message and the way out for a border that polyc does not know."""
    wanted = _ELSEWHERE.get(word)
    help = f"modes are: {', '.join(PAD_MODES)}; or give a value"
    return f"there is no padding called {word!r}", help if wanted is None else f"write {wanted}; {help}"


def unpadded_reads(expr: Expr) -> Iterator[Read]:
    """The reads of an expression that stand in no `pad`."""
    padded = [n.read for n in walk(expr) if isinstance(n, Pad)]
    return (r for r in reads(expr) if not any(r is p for p in padded))
