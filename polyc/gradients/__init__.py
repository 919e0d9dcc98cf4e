"""Derivatives of programs, as programs: `jvp` forward, `vjp` in reverse."""

from polyc.gradients.forward import jvp
from polyc.gradients.reverse import vjp

__all__ = ["jvp", "vjp"]
