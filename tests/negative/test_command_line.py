"""Wrong files, sizes and options on the command line.

A wrong operator, file, array or size ends with exit code 1 and a diagnostic; a command line that does not parse with 2 and
the usage.  Standard output stays empty in both cases.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from polyc.cli import main
from tests.negative.support import check_rendering, refuse_command

MM = "def mm(float(M, K) A, float(K, N) B) -> (C) {\n  C(m, n) +=! A(m, k) * B(k, n)\n}\n"
WRONG = MM.replace("A(m, k)", "Q(m, k)")
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with files to be wrong about."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "mm.tc": MM.encode(),
        "mm.h": MM.encode(),
        "mm.o": MM.encode(),
        "two.tc": (MM + MM.replace("mm(", "other(")).encode(),
        "mark.tc": BOM + MM.encode(),
        "crlf.tc": MM.replace("\n", "\r\n").encode(),
        "cr.tc": MM.replace("\n", "\r").encode(),
        "mark_wrong.tc": BOM + WRONG.encode(),
        "crlf_wrong.tc": WRONG.replace("\n", "\r\n").encode(),
        "cr_wrong.tc": WRONG.replace("\n", "\r").encode(),
        "utf16.tc": MM.encode("utf-16"),
        "latin1.tc": b"# \xe9t\xe9\n" + MM.encode(),
        "binary.tc": bytes(range(256)) * 4,
        "empty.tc": b"",
        "empty.npy": b"",
        "look.tc": b"def look(float(V) T, int32(N) I) -> (O) { O(i) = T(I(i)) }",
        "window.tc": b"def window(float(N) x, float(K) k) -> (y) { y(i) +=! x(i + j) * k(j) }",
        "outer.tc": b"def outer(float(M) x, float(N) y) -> (z) { z(i, j) = x(i) * y(j) }",
    }
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.tc").mkdir()
    np.save("a.npy", np.ones((3, 4), np.float32))
    np.save("a64.npy", np.ones((3, 4)))
    np.save("a16.npy", np.ones((3, 4), np.float16))
    np.save("b.npy", np.ones((5, 6), np.float32))
    np.save("index.npy", np.array([1, 99], np.int32))
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    np.savez("several.npz", a=1, b=2)
    (tmp_path / "half.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:100])
    return tmp_path


SIZES = "--size M=2,K=2,N=2"
REFUSED = {
    "run nothing.tc": ("argument-file", "No such file"),
    "run folder.tc": ("argument-file", "directory"),
    "run binary.tc": ("argument-file", "not a text file", "UTF-8"),
    "run utf16.tc": ("argument-file", "UTF-16", "save it as UTF-8"),
    "run latin1.tc": ("argument-file", "byte 2 is not UTF-8"),
    "run empty.tc": ("syntax-unexpected", "a text is one or more definitions"),
    "run mark_wrong.tc": ("semantic-undefined", ":2:15", "2 |   C(m, n) +=! Q(m, k)"),
    "run crlf_wrong.tc": ("semantic-undefined", ":2:15", "2 |   C(m, n) +=! Q(m, k)"),
    "run cr_wrong.tc": ("semantic-undefined", ":2:15", "2 |   C(m, n) +=! Q(m, k)"),
    "run two.tc": ("argument-entry", "--entry mm"),
    "run two.tc --entry othr": ("argument-entry", "did you mean other?"),
    "run mm.tc": ("argument-size-missing", "no value for M, K, N", "--size M=…,K=…,N=…"),
    "run mm.tc --size M=3": ("argument-size-missing", "no value for K, N"),
    "run mm.tc --size m=3,K=4,N=5": ("argument-name", "did you mean M?"),
    "compile mm.tc --size Q=4": ("argument-name", "no input, size or constant named Q"),
    "run mm.tc --size M=1099511627776,K=2,N=2": ("argument-too-large", "input A of shape (1099511627776, 2)", "GiB"),
    "run mm.tc --size M=99999999999999999999,K=2,N=2": ("argument-size", "beyond 2**62"),
    "run outer.tc --size M=1048576,N=1048576": ("argument-too-large", "(1048576, 1048576)", "this process may have"),
    "run window.tc --size N=2,K=5": ("range-negative", "ends before -2", "N=2, K=5"),
    "run mm.tc --input a.npy --input b.npy": ("argument-size", "B has 5 rows", "K is 4 since A's dimension 1 is 4"),
    "run mm.tc --input a64.npy --size N=3": ("argument-type-dtype", "float64", "A.astype('float32')"),
    "run mm.tc --input a16.npy --size N=3": ("argument-type-dtype", "float16"),
    "run mm.tc --input a.npy --size M=9,N=3": ("argument-size", "A has 3 rows", "M=9 was given"),
    "run mm.tc --input several.npz": ("argument-file", "several arrays"),
    "run mm.tc --input objects.npy": ("argument-file", "numpy.save"),
    "run mm.tc --input empty.npy": ("argument-file", "not a NumPy .npy file"),
    "run mm.tc --input half.npy": ("argument-file", "cannot be read"),
    "run mm.tc --input mm.tc": ("argument-file", "not a NumPy .npy file"),
    "run mm.tc --input folder.tc": ("argument-file", "directory"),
    "run look.tc --input I=index.npy --size V=5": ("bounds-index", "subscript 99", "0 <= subscript < 5"),
    "run /dev/zero": ("argument-file", "more than 64 MiB"),
    "run mm.tc --input /dev/zero --size N=3": ("argument-file", "not a NumPy .npy file"),
    f"run mm.tc {SIZES} --output mm.tc/x": ("argument-file", "Not a directory"),
    "compile mm.tc -o nowhere/x.o": ("argument-file", "No such file"),
    "explain nothing.tc": ("argument-file", "No such file"),
}


@pytest.mark.parametrize("command", REFUSED)
def test_command_is_refused(folder, command):
    code, *fragments = REFUSED[command]
    before = set(os.listdir(folder))
    refuse_command(command.split(), code, *fragments)
    assert set(os.listdir(folder)) == before, "a refusal leaves no files"


MISTYPED = {
    "run mm.tc --size M=-3": "M=-3",
    "run mm.tc --size M=2.5": "such as N=128",
    "run mm.tc --size M=": "NAME=NUMBER",
    "run mm.tc --size 3": "NAME=NUMBER",
    "run mm.tc --size M=3,M=4": "M is given as 3 and as 4",
    f"run mm.tc --size M={'9' * 5000}": "5000 digits",
    "run mm.tc --sizes M=1": "--size",
    "run mm.tc --input C=a.npy": "inputs are: A, B",
    "run mm.tc --input A=a.npy --input A=b.npy": "A is given twice",
    "run mm.tc --seed x": "'x' is not a valid integer",
    "run mm.tc --seed -1": "negative",
    "compile mm.tc --emit loop": "did you mean loops?",
    "compile mm.tc --target x86-64-v9": "'x86-64-v4'",
    "compile mm.tc -o folder.tc": "is a directory",
    "compile mm.tc -o mm.tc": "mm.tc is the text that is compiled",
    "compile mm.tc --emit loops -o ../FOLDER/mm.tc": "is the text that is compiled",
    "compile mm.h -o mm.o": "mm.h is the text that is compiled",
    "compile mm.o": "mm.o is the text that is compiled",
    "compile": "Missing argument 'FILE'",
    "compile mm.tc two.tc": "two.tc",
    "cmpile mm.tc": "No such command 'cmpile'",
    "--verson": "--version",
    "compile ''": "the name is empty",
    "run ''": "the name is empty",
    "compile mm.tc -o ''": "is no name of a file",
    "compile mm.tc -o new/": "'new/' is no name of a file",
    "compile mm.tc --emit loops -o ''": "is no name of a file",
    "run mm.tc --size M=２": "NAME=NUMBER",
}


@pytest.mark.parametrize("command", MISTYPED, ids=range(len(MISTYPED)))
def test_command_line_does_not_parse(folder, command):
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    done = CliRunner().invoke(main, shlex.split(command.replace("FOLDER", folder.name)))
    assert before == {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}, "what is there stays as it is"
    assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert MISTYPED[command] in done.stderr, done.stderr
    assert "main" not in done.stderr.split("\n")[0]


@pytest.mark.parametrize("name", ["mark.tc", "crlf.tc", "cr.tc"])
def test_marks_and_line_ends_of_other_editors_are_read(folder, name):
    done = CliRunner().invoke(main, ["run", name, *SIZES.split()])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == CliRunner().invoke(main, ["run", "mm.tc", *SIZES.split()]).stdout


def test_process_shows_no_traceback(folder):
    done = subprocess.run([sys.executable, "-m", "polyc", "run", "mark_wrong.tc"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    check_rendering(done.stderr)


def test_standard_input_that_is_closed(folder):
    done = subprocess.run(
        [sys.executable, "-m", "polyc", "run", "-"], capture_output=True, text=True, check=False, preexec_fn=lambda: os.close(0)
    )
    assert (done.returncode, done.stdout) == (1, "") and "error[argument-file]: standard input is closed" in done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["run", "mm.tc", *SIZES.split()]])
def test_standard_output_that_is_closed(folder, arguments):
    """Nothing was written, and the exit code was 0."""
    command = [sys.executable, "-m", "polyc", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, preexec_fn=lambda: os.close(1))
    assert done.returncode == 1 and "error[argument-file]: cannot use standard output: Bad file descriptor" in done.stderr


def test_array_file_that_promises_more_than_memory(folder):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3000000000000, 4), }"
    padding = b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + (len(header) + len(padding)).to_bytes(2, "little") + header + padding
    (folder / "huge.npy").write_bytes(content)
    refuse_command(["run", "mm.tc", "--input", "huge.npy", "--size", "N=2"], "argument-too-large", "huge.npy")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["compile", "mm.tc", "--emit", "program"]])
def test_a_full_disk_behind_standard_output_is_named(folder, arguments):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "polyc", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    check_rendering(done.stderr)
    assert "error[argument-file]: cannot use standard output: No space left" in done.stderr
