"""Many programs at once: the same kernels from workers, from the cache and from here; what goes wrong in a worker."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from polyc import driver, jobs, recall, workers
from polyc.config import default_options
from polyc.diagnostics import PolycError


def make_jobs(count, text="def scale{n}(float(N) x) -> (y) {{ y(i) = x(i) * {n}.0 + {n}.5 }}", size=37):
    programs = [driver.read_tc(text.format(n=n), "<test>")[0] for n in range(1, count + 1)]
    return [jobs.Job(p, {"N": size}, None, default_options()) for p in programs]


def run(compiled, size=37):
    x = np.arange(size, dtype=np.float32)
    return [c.compile()(x) for c in compiled]


@pytest.fixture
def no_debugging(monkeypatch, caplog):
    monkeypatch.delenv("POLYC_DEBUG", raising=False)
    caplog.set_level("INFO", "polyc")  # why a worker was of no use


@pytest.fixture(params=["cache", "no cache"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("POLYC_CACHE", "1" if request.param == "cache" else "0")
    return request.param


def test_workers_make_the_same_kernels(no_debugging, store, monkeypatch):
    many = make_jobs(jobs.FEWEST)
    seen = []
    with monkeypatch.context() as patch:  # nothing is compiled in this process
        patch.setattr(recall, "compile_program", None)
        compiled = jobs.compile_all(many, 2, lambda done, total: seen.append((done, total)))
    assert seen == [(n, len(many)) for n in range(len(many) + 1)]
    x = np.arange(37, dtype=np.float32)
    for n, y in enumerate(run(compiled), 1):
        np.testing.assert_allclose(y, x * n + n + 0.5, rtol=1e-6)
    here = [recall.Request(j.program, j.sizes, j.strides, (), j.options).lower() for j in many]
    assert [c.object_code() for c in compiled] == [c.object_code() for c in here]
    if store == "cache":
        with monkeypatch.context() as patch:  # the second time no process is started
            patch.setattr(subprocess, "Popen", None)
            assert all(isinstance(c, recall.Recalled) for c in jobs.compile_all(many, 2))


@pytest.mark.parametrize("store", ["cache"], indirect=True)
def test_strides_sizes_and_constants_reach_the_worker(no_debugging, store, monkeypatch):
    text = "def f{n}(float(N, K) x, float(K) w) -> (y) {{ y(i) +=! x(i, k) * (w(k) * {n}.0) }}"
    programs = [driver.read_tc(text.format(n=n), "<test>")[0] for n in range(1, jobs.FEWEST + 1)]
    strides = ((4, 80), None, (4,))
    many = [jobs.Job(p, {"N": 20, "K": 5}, strides, default_options(), ("w",)) for p in programs]
    with monkeypatch.context() as patch:
        patch.setattr(recall, "compile_program", None)
        compiled = jobs.compile_all(many, 2)
    for job, c in zip(many, compiled, strict=True):
        expected = recall.Request(job.program, job.sizes, strides, (), job.options, ("w",)).lower()
        assert c.signature == expected.signature and c.object_code() == expected.object_code()
        assert len(c.preparations) == len(expected.preparations)


def test_long_compilations_say_in_the_log_how_far_they_are(caplog, monkeypatch):
    caplog.set_level("INFO", "polyc")
    told = jobs.LoggedProgress()
    told(0, 9)
    assert not caplog.messages
    monkeypatch.setattr(jobs, "PATIENCE", -1.0)
    told(4, 9)
    assert caplog.messages == ["compiled 4 of 9 programs"]


@pytest.mark.parametrize("store", ["no cache"], indirect=True)
def test_errors_are_raised_here(no_debugging, store):
    text = "def f{n}(float(N) x) -> (y) {{ y(i) = x(i + {n}) where i in 0:N }}"
    with pytest.raises(PolycError):
        jobs.compile_all(make_jobs(jobs.FEWEST, text), 2)


@pytest.mark.parametrize("store", ["no cache"], indirect=True)
def test_workers_that_die_are_done_without(no_debugging, store, monkeypatch):
    def start():
        command = [sys.executable, "-c", "print('{'); exit(3)"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return workers.Worker(process.stdin, process.stdout, None, process)

    monkeypatch.setattr(workers, "start", start)
    compiled = jobs.compile_all(make_jobs(jobs.FEWEST), 2)
    assert len(run(compiled)) == jobs.FEWEST


@pytest.mark.parametrize("store", ["no cache"], indirect=True)
def test_what_progress_raises_ends_everything(no_debugging, store):
    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.compile_all(make_jobs(jobs.FEWEST), 2, stop)


def test_a_worker_does_not_import_the_users_script(no_debugging, tmp_path, monkeypatch):
    # Neither a script without a main guard nor modules beside it are run again.
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            sys.path.pop(0)
            print("begin", flush=True)
            from polyc import driver, jobs
            from polyc.config import default_options
            text = "def f{n}(float(N) x) -> (y) {{ y(i) = x(i) + {n}.0 }}"
            programs = [driver.read_tc(text.format(n=n), "<t>")[0] for n in range(jobs.FEWEST)]
            all_jobs = [jobs.Job(p, {"N": 8}, None, default_options()) for p in programs]
            from polyc import recall
            recall.compile_program = None
            print(len(jobs.compile_all(all_jobs, 2)))
            """
        )
    )
    monkeypatch.setenv("POLYC_CACHE", "0")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.stdout.split() == ["begin", str(jobs.FEWEST)], done.stderr


@pytest.fixture
def no_workers():
    workers.end_all()
    yield
    workers.end_all()


@pytest.mark.parametrize("store", ["no cache"], indirect=True)
def test_a_worker_is_used_again(no_debugging, no_workers, store, monkeypatch):
    started = []
    real = workers.start
    monkeypatch.setattr(workers, "start", lambda: started.append(real()) or started[-1])
    text = "def f{n}(float(N) x) -> (y) {{ y(i) = x(i) * {n}.25 }}"
    jobs.compile_all(make_jobs(jobs.FEWEST, text), 1)
    jobs.compile_all(make_jobs(jobs.FEWEST, text, 41), 1)
    assert len(started) == 1 and started[0].process.poll() is None
    monkeypatch.setenv("POLYC_SOMETHING", "1")  # which might decide what code is made
    jobs.compile_all(make_jobs(jobs.FEWEST, text, 43), 1)
    assert len(started) == 2 and started[0].process.poll() is not None
    workers.end_all()
    assert started[1].process.poll() is not None


def test_one_worker_is_started_and_the_others_are_copies(no_debugging, no_workers, store, monkeypatch):
    started = []
    real = workers.start
    monkeypatch.setattr(workers, "start", lambda: started.append(real()) or started[-1])
    text = "def f{n}(float(N) x) -> (y) {{ y(i) = x(i) * {n}.75 }}"
    with monkeypatch.context() as patch:
        patch.setattr(recall, "compile_program", None)
        compiled = jobs.compile_all(make_jobs(jobs.FEWEST, text), 3)
    np.testing.assert_array_equal(run(compiled)[1], np.arange(37, dtype=np.float32) * 2.75)
    assert len(started) == 1 and len(workers._idle) == 3
    copies = [w for w in workers._idle if w.process is None]
    workers.end_all()
    with pytest.raises((OSError, EOFError, ValueError)):
        copies[0].ask({"glue": "pool"})
    with monkeypatch.context() as patch:  # where processes cannot be copied, each is started by itself
        patch.setattr(workers, "CAN_COPY", False)
        jobs.compile_all(make_jobs(jobs.FEWEST, text, 41), 2)
    assert len(started) == 3


def test_a_copy_that_cannot_be_made_is_done_without(no_debugging, no_workers, store, monkeypatch):
    real = workers.have
    monkeypatch.setattr(workers, "have", lambda count, about: real(count, {"target": "no machine"}))
    compiled = jobs.compile_all(make_jobs(jobs.FEWEST), 2)
    assert len(run(compiled)) == jobs.FEWEST


def test_a_worker_ends_when_nothing_comes(no_debugging):
    script = (
        "import sys, polyc.workers as w, polyc.jobs as j; w.IDLE_SECONDS = 0.2; j.work(sys.stdin.buffer, sys.stdout.buffer)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.wait(timeout=60) == 0
    process.stdin.close()


def test_a_worker_whose_asker_has_ended_leaves_no_traceback(no_debugging):
    command = [sys.executable, "-P", "-m", "polyc._worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # what it says first finds nobody
    assert process.wait(60) == 1
    assert process.stderr.read() == b""


def test_a_model_is_compiled_without_loading_the_compiler(no_debugging, tmp_path, monkeypatch):
    # isl and LLVM are 100 MB that a process would keep.
    script = textwrap.dedent(
        """
        import sys
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper
        import polyc
        w = np.arange(64 * 96, dtype=np.float32).reshape(64, 96) % 7
        nodes = [helper.make_node("Gemm", ["x", "w", "c"], ["y"], alpha=0.5), helper.make_node("Relu", ["y"], ["z"])]
        x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (8, e)) for n, e in (("x", 64), ("z", 96)))
        inits = [numpy_helper.from_array(a, n) for n, a in (("w", w), ("c", w[0] * 2))]
        model = helper.make_model(helper.make_graph(nodes, "g", [x], [z], inits))
        a = np.arange(512, dtype=np.float32).reshape(8, 64) % 5
        (found,) = polyc.onnx.load(model).run(None, {"x": a})
        np.testing.assert_allclose(found, np.maximum(0.5 * a @ w + w[0] * 2, 0), rtol=1e-5)
        print([m for m in ("islpy", "llvmlite", "highspy") if m in sys.modules])
        """
    )
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    for cache in ("1", "0"):
        monkeypatch.setenv("POLYC_CACHE", cache)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout.split() == ["[]"], done.stderr


def test_an_answer_that_breaks_off_is_noticed():
    stream = io.BytesIO()
    workers.write(stream, {"a": 1}, b"12345")
    stream.seek(0)
    assert workers.read(stream) == ({"a": 1, "bytes": 5}, b"12345")
    for end in (3, len(stream.getvalue()) - 1):
        with pytest.raises(EOFError):
            workers.read(io.BytesIO(stream.getvalue()[:end]))


def test_workers_do_not_hear_of_ctrl_c_at_the_terminal():
    program = """
    import os, signal
    from polyc import workers
    signal.signal(signal.SIGINT, lambda *_: None)  # ignoring it would be inherited
    with workers.lend() as worker:
        os.killpg(0, signal.SIGINT)
        print("failed" in worker.ask({"glue": "nonsense"})[0])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, "True\n") and "KeyboardInterrupt" not in done.stderr, done.stderr
