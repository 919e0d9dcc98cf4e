"""Which expressions stay the same where two indices change places."""

from __future__ import annotations

import pytest

from polyc.ir.exchange import survives_exchange
from tests.scheduler.support import read

HEAD = "def f(float(N,N) a, float(N,N) b, float(N) c, uint8(N) u, int32(N) n, float(N,N) s) -> (r) {{ r(i,j) +=! {0} }}"

SAME = [
    "a(k,i) * a(k,j)",
    "a(i,k) * a(j,k)",
    "c(k) * a(k,i) * a(k,j)",
    "a(k,i) * (c(k) * a(k,j))",
    "(a(i,k) - a(j,k)) * (a(i,k) - a(j,k))",
    "(a(i,k) - a(j,k)) * (b(j,k) - b(i,k)) / c(k)",
    "-(c(i) - c(j) - c(k)) * (c(j) + c(k) - c(i)) * (c(j) - c(i) - c(k)) * (c(i) + c(k) - c(j))",
    "exp(-fabs(a(i,k) - a(j,k)))",
    "cos(c(i) - c(j)) * c(k)",
    "a(i,k) * b(j,k) + b(i,k) * a(j,k)",
    "max(a(i,k), a(j,k)) + min(c(j), c(i))",
    "i == j ? 1.0 : a(i,k) * a(j,k)",
    "c(i) > c(j) || c(j) > c(i) ? c(k) : 0.0",
    "c(i) >= c(k) && c(j) >= c(k) ? 1.0 : 0.0",
    "a(i,j) * a(j,i) * c(k)",
    "c(i + j + k)",
    "(n(i) - n(j)) * (n(j) - n(i)) + n(k)",
    "u(i) * u(j) + u(k)",
    "(u(i) - u(j)) * (u(j) - u(i))",
    "double(a(i,k) - a(j,k)) * double(b(i,k) - b(j,k))",
    "c(k) / ((a(i,k) - a(j,k)) * (a(i,k) - a(j,k)))",
    "s(i,j) * c(k)",
    "s(i,k) * s(k,j)",
]

OTHERS = [
    "a(i,k) * b(j,k)",
    "a(i,k) * a(k,j)",
    "a(i,k) - a(j,k)",
    "(a(i,k) - a(j,k)) * (a(i,k) - a(j,k)) * (a(i,k) - a(j,k))",
    "fabs(a(i,k)) - fabs(a(j,k))",
    "exp(a(i,k) - a(j,k))",
    "c(k) * sin(c(i) - c(j))",
    "(c(i) - c(j)) / (a(i,k) - a(j,k))",
    "a(i,k) / a(j,k)",
    "c(k) / ((a(i,k) - a(j,k)) * (b(i,k) - b(j,k)))",
    "i <= j ? a(i,k) * a(j,k) : 0.0",
    "c(i) < c(j) ? c(k) : 0.0",
    "c(2 * i + j + k)",
    "(u(i) - u(j) + u(k)) / (u(j) - u(i) + u(k))",
    "int32(u(i) - u(j)) * int32(u(i) - u(j)) * n(k)",
    "n(i) % n(j) + n(k)",
    "s(i,k) * a(k,j)",
]


def survives(value: str, is_summed: bool = True) -> bool:
    program = read(HEAD.format(value))
    (s,) = program.statements
    return survives_exchange(s.value, "i", "j", program.types, {"s": (0, 1)}, is_summed)


@pytest.mark.parametrize("value", SAME)
def test_what_stays_the_same(value: str):
    assert survives(value)


@pytest.mark.parametrize("value", OTHERS)
def test_what_becomes_another_value(value: str):
    assert not survives(value)


def test_a_zero_of_either_sign_matters_outside_of_sums():
    value = "(a(i,k) - a(j,k)) * (b(i,k) - b(j,k))"
    assert survives(value) and not survives(value, is_summed=False)
