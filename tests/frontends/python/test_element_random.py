"""Random functions of elements with branches and loops over numbers: what they give in an operator, and in Python."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from polyc.diagnostics import CompileBudgetError
from tests.frontends.python.evaluate import run

N_FUNCTIONS = 12


def write_expression(draw: random.Random, names: list[str], depth: int = 0) -> str:
    kind = draw.random()
    if kind < 0.35 or depth > 2:
        return draw.choice(names)
    if kind < 0.5:
        return draw.choice(["0.5", "1.0", "2.0", "-1.0"])
    a, b = (write_expression(draw, names, depth + 1) for _ in range(2))
    return f"({a} {draw.choice('+-*')} {b})" if kind < 0.9 else f"min({a}, {b})"


def write_block(draw: random.Random, names: list[str], loops: list[str], indent: int = 1) -> list[str]:
    def condition() -> str:
        return f"{write_expression(draw, names, 1)} {draw.choice('<>')} {write_expression(draw, names, 1)}"

    lines: list[str] = []
    pad = "    " * indent
    for _ in range(draw.randint(1, 3)):
        kind = draw.random()
        if kind < 0.45 or indent > 3:
            lines.append(f"{pad}{draw.choice('ab')} {draw.choice(['=', '+='])} {write_expression(draw, names)}")
        elif kind < 0.7:
            lines += [f"{pad}if {condition()}:", *write_block(draw, names, loops, indent + 1)]
            if draw.random() < 0.5:
                lines += [f"{pad}else:", *write_block(draw, names, loops, indent + 1)]
        elif kind < 0.88 and len(loops) < 2:
            variable = f"k{len(loops)}"
            lines.append(f"{pad}for {variable} in range({draw.randint(0, 3)}):")
            lines += write_block(draw, [*names, variable], [*loops, variable], indent + 1)
        elif loops and kind < 0.96:
            test = draw.choice([condition(), f"{loops[-1]} == 1"])
            lines += [f"{pad}if {test}:", f"{pad}    {draw.choice(['break', 'continue'])}"]
        else:
            lines += [f"{pad}if {condition()}:", f"{pad}    return {write_expression(draw, names)} + 0 * a"]
    return lines


@pytest.mark.parametrize("seed", [1, 2])
def test_random_functions_agree_with_python(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    lines: list[str] = []
    for n in range(N_FUNCTIONS):
        body = write_block(draw, ["a", "b", "x", "y"], [])
        lines += [f"def g{n}(x, y):", "    a, b = x * 1.0, y * 1.0", *body, "    return a - b + 0 * x * y"]
        lines += [f"def f{n}(X: 'f64[N]', Y: 'f64[N]'):", f"    Z[i] = g{n}(X[i], Y[i])", "    return Z"]
    path = tmp_path / "written.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "written", module)
    spec.loader.exec_module(module)
    x, y = np.random.default_rng(seed).uniform(-2, 2, (2, 12))
    n_compared = 0
    for n in range(N_FUNCTIONS):
        function = getattr(module, f"g{n}")
        try:
            found = run(getattr(module, f"f{n}"), x, y)
        except CompileBudgetError:
            continue
        n_compared += 1
        np.testing.assert_allclose(found, [function(*p) for p in zip(x, y, strict=True)], rtol=1e-9, err_msg=f"g{n}")
    assert n_compared > N_FUNCTIONS // 2
