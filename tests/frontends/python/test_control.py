"""``for`` over numbers is unrolled when the function is read, ``if`` on numbers is decided."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import Diagnostic, PolycError
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


def compile_errors(body: str, parameter: str = "x: 'f32[8]'") -> list[Diagnostic]:
    lines = "\n".join("    " + line for line in body.splitlines())
    with pytest.raises(PolycError) as caught:
        polyc.op(f"def f({parameter}):\n{lines}\n    return y")(np.ones(8, np.float32))
    return list(caught.value.diagnostics)


def test_an_error_of_all_rounds_is_told_once() -> None:
    (error,) = compile_errors("for k in range(28):\n    y[i] = q[i] * k")
    assert error.message == "there is no tensor q"


def test_an_error_of_some_rounds_names_the_first_of_them() -> None:
    body = "for k, w in ((0, 1.0), (5, 2.0)):\n    for m in range(3):\n"
    body += "        with polyc.where(0 <= i < 4):\n            y[(k // 5 * 3 + m) * 4 + i] = x[i + k + m] * w"
    error = compile_errors(body)[0]
    assert error.code == "range-out-of-bounds"
    assert error.message.endswith("(with k = 5, w = 2.0, m = 0, and 2 times more)")


def test_a_temporary_with_ranges_in_a_loop_is_one_error_with_the_way_out() -> None:
    body = "y[i] = x[i]\nfor k in range(7):\n    with polyc.where(k <= i < 8):\n"
    body += "        t[i] = x[i - k] * k\n    y[i] = y[i] + t[i]"
    (error,) = compile_errors(body)
    assert error.code == "range-written-twice" and error.message.endswith("(with k = 1, and 5 times more)")
    assert error.help is not None and "give each its own, t[k, i] = ..." in error.help
    fixed = body.replace("t[i] =", "t[k, i] =").replace("y[i] + t[i]", "y[i] + (t[k, i] if i >= k else 0)")
    source = "\n    ".join(["def f(x: 'f32[8]'):", *fixed.splitlines(), "return y"])
    x = np.arange(8, dtype=np.float32)
    shifted = sum(k * np.concatenate([np.zeros(k), x[: 8 - k]]) for k in range(7))
    np.testing.assert_allclose(polyc.op(source)(x), x + shifted)


def test_a_warning_of_all_rounds_is_told_once() -> None:
    body = "y[i] = x[i]\nfor k in range(3):\n    t[i] = sum(i8(x[i]) + i8(x[j]))\n    y[i] = y[i] + t[i] * k"
    lines = "\n".join("    " + line for line in body.splitlines())
    found = read_function(f"def f(x: 'f32[N]'):\n{lines}\n    return y").warnings
    assert [w.code for w in found] == ["type-narrow-sum"]


def test_checks_of_rounds_keep_their_round_in_the_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    body = "for k in range(3):\n    with polyc.where(0 <= i < 4):\n        y[4 * k + i] = x[i + k]"
    lines = "\n".join("    " + line for line in body.splitlines())
    messages = []
    for _ in range(2):
        op = polyc.op(f"def f(x: 'f32[N]'):\n{lines}\n    return y", dynamic=True)
        assert op(np.ones(6, np.float32)).shape == (12,)
        with pytest.raises(PolycError) as caught:
            op(np.ones(5, np.float32))
        messages.append(str(caught.value))
    assert "(with k = 2)" in messages[0] and messages[1] == messages[0]


def warnings_of(body: str) -> list[Diagnostic]:
    lines = "\n".join("    " + line for line in body.splitlines())
    return list(read_function(f"def f(x: 'f32[N, M]'):\n{lines}\n    return y").warnings)


def test_a_sum_that_goes_on_from_round_to_round_and_is_read_in_each_is_warned_of() -> None:
    body = "for k in range(3):\n    s[i] += x[i, j] * k\n    y[k, i] = s[i]"
    (warning,) = warnings_of(body)
    assert warning.code == "semantic-accumulate" and "s[i] = sum(...)" in (warning.help or "")
    for clear in (body.replace("s[i] += x[i, j] * k", "s[i] = sum(x[i, j] * k)"), "s[i] = 0 * x[i, 0]\n" + body):
        assert not warnings_of(clear)
    assert not warnings_of("for k in range(3):\n    y[i] += x[i, j] * k")


def test_advice_on_narrow_sums_in_loops_is_no_running_sum() -> None:
    (alone,) = warnings_of("y[i] = sum(i8(x[i, j]) + i8(x[i, 0]))")
    (inside,) = warnings_of(
        "y[i] = x[i, 0]\nfor k in range(2):\n    t[i] = sum(i8(x[i, j]) + i8(x[i, 0]))\n    y[i] = y[i] + t[i]"
    )
    assert "write +=" in (alone.help or "") and "cast the result" in (inside.help or "")


def test_a_function_below_the_operator_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "early.py"
    path.write_text("def early(x: 'f32[N]'):\n    y[i] = later(x[i])\n    return y\n\n\ndef later(v):\n    return v + 1\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    later = names.pop("later")
    with pytest.raises(PolycError, match="later is defined below early, which is read before it is there"):
        read_function(names["early"])
    names["later"] = later
    read_function(names["early"])
