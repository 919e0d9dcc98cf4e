"""``for`` over numbers is unrolled when the function is read, ``if`` on numbers is decided."""

from polyc.frontends.python import read_function
from polyc.ir.text import format_statement


def statements(body: str, **constants: object) -> list[str]:
    lines = "\n".join("    " + line for line in body.splitlines())
    source = f"def f(x: 'f32[N]', *, n=3, fast=True):\n{lines}\n    return y"
    return [format_statement(s) for s in read_function(source, constants=constants).program.statements]


def test_a_range_is_unrolled_into_versions() -> None:
    assert statements("y[i] = x[i]\nfor k in range(2):\n    y[i] = y[i] * k") == [
        "S0(i): y[i] = x[i]",
        "S1(i): y.1[i] = y[i] * 0.0",
        "S2(i): y.2[i] = y.1[i] * 1.0",
    ]


def test_constants_bound_the_loop() -> None:
    body = "y[i] = x[i]\nfor k in range(n - 1):\n    y[i] = y[i] + x[i]"
    assert len(statements(body)) == 3
    assert len(statements(body, n=6)) == 6
    assert len(statements(body, n=1)) == 1


def test_tuples_pairs_and_positions() -> None:
    body = "y[i] = x[i]\nfor k, (w) in enumerate((0.5, 2.5)):\n    y[i] = y[i] + w * x[i] * k"
    assert statements(body)[1:] == ["S1(i): y.1[i] = y[i] + 0.5 * x[i] * 0.0", "S2(i): y.2[i] = y.1[i] + 2.5 * x[i] * 1.0"]
    assert statements("for a, b in ((1, 2), (3, 4)):\n    y[i] = a * b * x[i]")[-1] == "S1(i): y.1[i] = 12.0 * x[i]"
    assert statements("for a in reversed(range(0, 6, 2)):\n    y[i] = a * x[i]")[0] == "S0(i): y[i] = 4.0 * x[i]"


def test_parts_of_a_tensor_are_written_round_by_round() -> None:
    found = statements("for k in range(2):\n    y[2 * i + k] = x[i] * (k + 1)")
    assert found == ["S0(i): y[2 * i + 0] = x[i] * 1.0", "S1(i): y[2 * i + 1] = x[i] * 2.0"]


def test_branches_are_decided() -> None:
    body = "if fast and n > 2:\n    y[i] = x[i]\nelif n == 1:\n    y[i] = 2 * x[i]\nelse:\n    y[i] = 3 * x[i]"
    assert statements(body) == ["S0(i): y[i] = x[i]"]
    assert statements(body, n=1) == ["S0(i): y[i] = 2.0 * x[i]"]
    assert statements(body, n=2) == ["S0(i): y[i] = 3.0 * x[i]"]


def test_branches_inside_loops_see_the_loop_variable() -> None:
    body = "for k in range(3):\n    if k == 0:\n        y[i] = x[i]\n    else:\n        y[i] = y[i] + k * x[i]"
    assert len(statements(body)) == 3
