"""Every example of every ``--help`` runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from polyc.cli import main
from polyc.cli.calibrate import QUICK
from polyc.runtime.threads import set_num_threads
from tests.cli.test_cli import PENDULA

EXAMPLES = Path(__file__).parents[2] / "examples"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            found += commands(inner, (*path, name))
    return found


def examples() -> list[str]:
    """The lines below ``Examples:``, without what they are said to do (behind two spaces)."""
    lines: list[str] = []
    for path, _ in commands(main):
        text = CliRunner().invoke(main, [*path, "--help"], terminal_width=200, prog_name="polyc").stdout
        block = re.search(r"^ +Examples?:\n((?: .+\n)+)", text, re.MULTILINE)
        if block is not None:
            lines += [re.split(r"\s{2,}", line.strip())[0] for line in block[1].splitlines()]
    return list(dict.fromkeys(lines))


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Files of the names in the examples."""
    softmax = (EXAMPLES / "softmax.tc").read_text()
    (tmp_path / "softmax.tc").write_text(softmax)
    (tmp_path / "mm.tc").write_text("def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }\n")
    (tmp_path / "op.tc").write_text("def op(float(M, K) A, float(B, S) x) -> (r, s) { r(m) +=! A(m, k)  s(b) +=! x(b, i) }\n")
    (tmp_path / "pendula.tc").write_text(PENDULA)
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    np.save(tmp_path / "b.npy", np.ones((4, 5), np.float32))
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path
    set_num_threads(None)


def write_model(path: Path) -> None:
    onnx, parser = pytest.importorskip("onnx"), pytest.importorskip("onnx.parser")
    text = """<ir_version: 8, opset_import: ["" : 17]>
    model (float[batch, 3, h, w] x) => (float[batch, 3, h, w] y) { z = Relu (x)  y = Softmax <axis: int = 1> (z) }"""
    onnx.save(parser.parse_model(text), path)


def test_there_are_examples():
    assert len(examples()) > 20


@pytest.mark.parametrize("line", examples())
def test_example_runs(line, directory, monkeypatch):
    if "model.onnx" in line:
        write_model(directory / "model.onnx")
    if "calibrate" in line:
        monkeypatch.setenv("POLYC_CACHE", "1")
        monkeypatch.setattr("polyc.cli.calibrate.FULL", QUICK)
    if "--peers" in line:
        pytest.importorskip("onnxruntime")
    if "--memory" in line or "--chunk" in line:
        pytest.importorskip("dask.array")
    if ".h5" in line:
        with pytest.importorskip("h5py").File(directory / "big.h5", "w") as file:
            file["x"] = np.ones((8, 6), np.float32)
    words, given, environment = shlex.split(line), None, {}
    if words[0] == "cat":
        given, words = words[1], words[3:]
    if "<" in words:
        given, words = words[-1], words[:-2]
    while "=" in words[0]:
        name, _, environment[name] = words.pop(0).partition("=")
    assert words[0] == "polyc", line
    text = (directory / given).read_text() if given is not None else None
    before = set(directory.iterdir())
    done = CliRunner().invoke(main, words[1:], input=text, env=environment)
    assert done.exit_code == 0, done.stderr
    assert done.stdout, "says or writes something"
    if "-o" in words:
        assert Path(words[words.index("-o") + 1]) in {p.relative_to(directory) for p in set(directory.iterdir()) - before}
