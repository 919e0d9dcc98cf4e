"""The command line: results on standard output only, diagnostics on standard error, exit codes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from polyc.cli import main
from polyc.codegen.objects.host import host_target
from polyc.runtime.threads import get_num_threads, set_num_threads

SUM = "def total(float(M, N) X) -> (s) {\n  s(m) +=! X(m, n)\n}\n"
GATHER = "def look(float(V, D) T, int32(B) I) -> (O) {\n  O(b, d) = T(I(b), d)\n}\n"

PENDULA = """def pendula(double(N) x, double(N) r, int64 T) -> (y) {
  A(0, i) = x(i) where i in 0:N
  A(t, i) = 0.5 * sin(r(i) * A(t-1, i)) where t in 1:T+1, i in 0:N
  y(i) = A(T, i) where i in 0:N
}
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "total.tc"
    path.write_text(SUM)
    return str(path)


def invoke(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def test_run_prints_results_on_stdout_and_times_on_stderr(source):
    first = invoke("run", source, "--size", "M=3,N=5", "--verify")
    assert first.exit_code == 0, first.stderr
    assert first.stdout.startswith("s: float32[3] min ")
    assert "verified" in first.stdout and "compiled in" in first.stderr and "compiled in" not in first.stdout
    assert invoke("run", source, "--size", "M=3", "--size", "N=5", "--verify").stdout == first.stdout
    other = invoke("run", source, "--size", "M=3,N=5", "--seed", "1")
    assert other.stdout != first.stdout


def test_derivatives_within_a_bound_of_memory(tmp_path):
    path = tmp_path / "pendula.tc"
    path.write_text(PENDULA)
    derivative = (str(path), "--vjp", "r", "--size", "N=100,T=200")
    assert invoke("run", *derivative, "--output", str(tmp_path / "stored")).exit_code == 0
    bounded = invoke("run", *derivative, "--memory", "64KiB", "--verify", "--output", str(tmp_path))
    assert bounded.exit_code == 0 and "\nverified: " in bounded.stdout, bounded.stderr
    np.testing.assert_allclose(np.load(tmp_path / "d_r.npy"), np.load(tmp_path / "stored" / "d_r.npy"), rtol=1e-12)
    assert "computed again" in bounded.stderr and "computed again" not in bounded.stdout
    explained = invoke("explain", *derivative, "--memory", "65536")
    assert explained.exit_code == 0 and explained.stdout.startswith("200 steps in "), explained.stderr
    for wrong, expected, code in (
        (("run", *derivative, "--memory", "64B"), "give memory=", 1),
        (("run", *derivative, "--memory", "much"), "memory cannot be 'much'", 1),
        (("explain", str(path), "--size", "N=9,T=9", "--memory", "1GiB"), "give --vjp or --grad, too", 2),
        (("explain", *derivative, "--memory", "64KiB", "--measure"), "is several", 2),
    ):
        refused = invoke(*wrong)
        assert refused.exit_code == code and expected in refused.stderr and not refused.stdout, refused.stderr


def test_sizes_for_any_value(source, tmp_path):
    out = str(tmp_path / "any.o")
    done = invoke("compile", source, "--size", "M=?", "--size", "N=512", "-o", out)
    assert done.exit_code == 0, done.stderr
    header = (tmp_path / "any.h").read_text()
    assert "M" in header
    text = invoke("compile", source, "--size", "M=?,N=512", "--emit", "program").stdout
    assert text == invoke("compile", source, "--size", "N=512", "--emit", "program").stdout
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    done = invoke("run", source, "--input", str(tmp_path / "x.npy"), "--size", "M=?", "--verify")
    assert done.exit_code == 0 and "s: float32[2] min 3" in done.stdout, done.stderr
    assert invoke("explain", source, "--size", "M = ?").exit_code == 0


def test_run_takes_inputs_and_writes_results(source, tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    for form in (str(tmp_path / "x.npy"), f"X={tmp_path / 'x.npy'}"):
        done = invoke("run", source, "--input", form, "--output", str(tmp_path / "out"))
        assert done.exit_code == 0, done.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "s.npy"), x.sum(axis=1))


def test_random_index_values_fit_the_table(tmp_path):
    path = tmp_path / "look.tc"
    path.write_text(GATHER)
    done = invoke("run", str(path), "--size", "V=3,D=4,B=50", "--verify")
    assert done.exit_code == 0, done.stderr


def test_accumulated_outputs_start_the_same_way_every_time(tmp_path):
    path = tmp_path / "acc.tc"
    path.write_text(SUM.replace("+=!", "+="))
    done = invoke("run", str(path), "--size", "M=3,N=5", "--verify")
    assert done.exit_code == 0, done.stderr
    assert "warning[" in done.stderr and "warning" not in done.stdout
    assert done.stdout == invoke("run", str(path), "--size", "M=3,N=5", "--verify").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["run", "{source}"], 1, "no value for M, N"),
        (["run", "{source}", "--size", "M=3,N=5,Q=1"], 1, "named Q"),
        (["run", "{source}", "--size", "M=three"], 2, "NAME=NUMBER"),
        (["run", "{source}", "--size", "M=1", "--size", "M=2"], 2, "given as 1 and as 2"),
        (["run", "{source}", "--size", "M=?,M=2"], 2, "given as ? and as 2"),
        (["run", "{source}", "--size", "M=?,N=2"], 1, "no value for M"),
        (["compile", "{source}", "--size", "Q=?"], 1, "its sizes are: M, N"),
        (["compile", "{source}", "--size", "M=??"], 2, "or N=?"),
        (["run", "{source}", "--entry", "other"], 1, "defs are: total"),
        (["run", "{source}", "--input", "{dir}/none.npy"], 1, "No such file"),
        (["run", "{source}", "--input", "{source}"], 1, "not a NumPy .npy file"),
        (["run", "{source}", "--input", "Q={source}"], 2, "no input is named Q"),
        (["run", "{source}", "--seed", "-1"], 2, "negative"),
        (["run", "{dir}/none.tc"], 1, "argument-file"),
        (["run", "{dir}"], 1, "argument-file"),
        (["run", "{dir}/binary.tc"], 1, "not a text file"),
        (["run", "{dir}/broken.tc"], 1, "syntax-"),
        (["explain", "{dir}/broken.tc"], 1, "syntax-"),
        (["compile", "{dir}/broken.tc"], 1, "syntax-"),
        (["compile", "{source}", "--emit", "poetry"], 2, "poetry"),
        (["compile", "{source}", "--size", "Q=3"], 1, "named Q"),
        (["compile", "{source}", "--target", "z80"], 2, "z80"),
        (["compile", "{source}", "--emit", "program", "-o", "{dir}/none/x"], 1, "argument-file"),
        (["frobnicate"], 2, "No such command"),
        (["{source}"], 2, "a command stands before it: run "),
        (["run", "{source}", "a.npy"], 2, "inputs are given with --input a.npy"),
        (["run", "{source}", "A=a.npy"], 2, "inputs are given with --input A=a.npy"),
        (["explain", "{source}", "N=4,D=?"], 2, "sizes are given with --size N=4,D=?"),
        (["compile", "{source}", "op.o"], 2, "the file to write is given with -o op.o"),
        (["compile", "{source}", "{source}"], 2, "there is one FILE"),
    ],
)
def test_errors(source, tmp_path, arguments, code, fragment):
    (tmp_path / "binary.tc").write_bytes(bytes(range(256)))
    (tmp_path / "broken.tc").write_text("def f(float(N) X -> (Y) {")
    done = invoke(*(a.format(source=source, dir=tmp_path) for a in arguments))
    assert done.exit_code == code, done.output
    assert fragment in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    if code == 1:
        assert "error[" in done.stderr and "help:" in done.stderr


def test_wrong_input_shape_is_in_the_users_words(source, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    done = invoke("run", source, "--input", str(tmp_path / "x.npy"))
    assert done.exit_code == 1
    assert "X: expected 2 dimensions but found tensor with 1 dimension" in done.stderr


@pytest.mark.parametrize("stage", ["program", "scop", "sched", "loops", "ll", "s"])
def test_emit_every_stage(source, tmp_path, stage):
    done = invoke("compile", source, "--emit", stage, "--target", "x86-64-v3")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout) > 20
    path = tmp_path / "stage.txt"
    assert invoke("compile", source, "--emit", stage, "--target", "x86-64-v3", "-o", str(path)).stdout == ""
    assert path.read_text() == done.stdout


def test_compile_writes_object_and_header(source, tmp_path):
    done = invoke("compile", source, "--size", "M=8,N=16", "-o", str(tmp_path / "t8.o"))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "t8.o").read_bytes().startswith(b"\x7fELF")
    assert "total" in (tmp_path / "t8.h").read_text()
    assert done.stdout.split() == [str(tmp_path / "t8.o"), str(tmp_path / "t8.h")]
    assert invoke("compile", source).exit_code == 0
    assert (tmp_path / "total.o").exists() and (tmp_path / "total.h").exists()
    refused = invoke("compile", source, "-o", str(tmp_path / "x.h"))
    assert refused.exit_code == 2


def test_text_on_standard_input(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (("compile", "--emit", "loops"), ("explain",), ("run", "--size", "M=3,N=5")):
        piped = CliRunner().invoke(main, [arguments[0], "-", *arguments[1:]], input=SUM)
        assert piped.exit_code == 0, piped.stderr
        assert piped.stdout.replace("<stdin>", source) == invoke(arguments[0], source, *arguments[1:]).stdout
    done = CliRunner().invoke(main, ["compile", "-"], input=SUM)
    assert done.stdout.split() == ["total.o", "total.h"] and (tmp_path / "total.o").exists()
    broken = CliRunner().invoke(main, ["compile", "-"], input="def total(")
    assert broken.exit_code == 1 and "<stdin>:1:" in broken.stderr
    assert CliRunner().invoke(main, ["run", "-"], input=b"\xff\xff").exit_code == 1


def test_stages_on_standard_output(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("compile", source, "--emit", "ll", "-o", "-").stdout == invoke("compile", source, "--emit", "ll").stdout
    refused = invoke("compile", source, "-o", "-")
    assert refused.exit_code == 2 and "name a file" in refused.stderr and refused.stdout == ""
    assert not (tmp_path / "-").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_standard_output_that_is_full_is_named(source):
    command = [sys.executable, "-m", "polyc", "compile", source, "--emit", "program"]
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
        assert done.returncode == 1 and "standard output: No space left" in done.stderr
        assert "ignored" not in done.stderr


def test_nothing_but_the_stage_on_standard_output(tmp_path):
    """HiGHS 1.16 printed its name there, below Python, whenever a recurrence was scheduled."""
    (tmp_path / "heat.tc").write_text("""def heat(float(N) X) -> (Y) {
      A(0, i) = X(i)
      A(t, i) = A(t-1, i) + pad(A(t-1, i-1), 0) where t in 1:4, i in 0:N
      Y(i) = A(3, i)
    }""")
    command = [sys.executable, "-m", "polyc", "compile", str(tmp_path / "heat.tc"), "--emit", "sched"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "POLYC_CACHE": "0"})
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("domain:"), done.stdout[:200]


def test_threads_of_a_run(source):
    try:
        for n in (1, 2):
            assert invoke("run", source, "--size", "M=3,N=5", "--threads", str(n)).exit_code == 0
            assert get_num_threads() == n
    finally:
        set_num_threads(None)


def test_explain(source):
    done = invoke("explain", source, "--size", "M=8,N=16")
    assert done.exit_code == 0, done.stderr
    assert "total" in done.stdout and done.stdout == invoke("explain", source, "--size", "M=8,N=16").stdout


def test_doctor():
    done = invoke("doctor")
    assert done.exit_code == 0, done.output
    for word in ("versions:", "machine:", "threads:", "POLYC_NUM_THREADS", "self test:", "what to do:"):
        assert word in done.stdout


@pytest.mark.parametrize("verb", ["compile", "run", "explain", "doctor"])
def test_help_has_examples(verb):
    done = invoke(verb, "--help")
    assert done.exit_code == 0 and f"polyc {verb}" in done.stdout and "Example" in done.stdout


def test_module_is_runnable(source):
    done = subprocess.run([sys.executable, "-m", "polyc", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("polyc")
    missing = subprocess.run([sys.executable, "-m", "polyc", "run", "nothing.tc"], capture_output=True, text=True)
    assert missing.returncode == 1 and missing.stderr.startswith("error[argument-file]") and missing.stdout == ""


def test_a_crash_is_reported_in_one_line(source, monkeypatch):
    from polyc import driver

    def crash(*arguments, **options):
        raise KeyError("lost")

    monkeypatch.setattr(driver, "lower", crash)
    done = invoke("explain", source)
    assert done.exit_code == 1 and "error[internal-crash]: compiling total: KeyError: 'lost'" in done.stderr
    assert "Traceback" not in done.stderr


def test_diagnostics_are_coloured_on_a_terminal(monkeypatch, capsys):
    from polyc.cli.common import show_diagnostics
    from polyc.diagnostics import Diagnostic, Source, Span

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    span = Span(Source("O(i) = [red]X(i)\n", "a.tc"), 7, 12)
    show_diagnostics([Diagnostic("syntax-unexpected", "expected a name", span, "write a name")])
    shown = capsys.readouterr().err
    assert "\x1b[" in shown and "[red]X(i)" in shown


def test_code_for_another_kind_of_processor_is_written_but_not_run(source, tmp_path):
    path = tmp_path / "arm.o"
    done = invoke("compile", source, "--target", "aarch64", "-o", str(path))
    assert done.exit_code == 0, done.stderr
    elf = path.read_bytes()
    assert elf.startswith(b"\x7fELF") and int.from_bytes(elf[18:20], "little") == 183  # EM_AARCH64
    assert "fadd\tv" in invoke("compile", source, "--target", "aarch64", "--emit", "s").stdout
    if host_target().architecture != "aarch64":
        done = invoke("run", source, "--size", "M=3,N=5", "--target", "aarch64")
        assert done.exit_code == 1 and done.stdout == ""
        assert "unsupported-foreign-target" in done.stderr and "cannot run on this machine" in done.stderr


def test_explain_measures_where_sizes_are_known(source):
    done = invoke("explain", source, "--size", "M=30,N=50", "--measure")
    assert done.exit_code == 0, done.stderr
    measured = done.stdout.split("== measured ==")[1]
    assert "one thread" in measured and "GHz" in measured and "GFLOP/s" in measured
    assert "measuring total" in done.stderr and "measuring" not in done.stdout
    done = invoke("explain", source, "--measure")
    assert done.exit_code == 1 and done.stdout == "" and "argument-size-missing" in done.stderr and "--size" in done.stderr


def test_interrupts_while_modules_are_read_show_no_traceback():
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "polyc.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from polyc.__main__ import main
main()
"""
    noticed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what runs in the background ignores it
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, preexec_fn=noticed)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_errors_that_come_of_interrupts_are_interrupts(source, monkeypatch):
    """The class statement of a module that Ctrl-C met ends in an error of its own."""

    def interrupted(*arguments, **options):
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("polyc.cli.run.load_operator", interrupted)
    done = invoke("run", source)
    assert done.exit_code == 1 and "Aborted!" in done.output and "internal" not in done.output
