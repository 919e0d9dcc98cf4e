"""What other processes left: found in a fresh one without the compiler, and shared by many at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, logging, sys
events = []
class Handler(logging.Handler):
    def emit(self, record):
        events.append(record.getMessage())
logging.getLogger("polyc").addHandler(Handler())
logging.getLogger("polyc").setLevel(logging.DEBUG)
import numpy as np
import polyc
x = np.arange(12, dtype=np.float32).reshape(3, 4)
{body}
print(json.dumps({{
    "sum": float(np.asarray(y).sum()),
    "hits": sum("cache: hit" in e for e in events),
    "misses": sum("cache: miss" in e for e in events),
    "loaded": [m for m in ("islpy", "highspy", "lark", "llvmlite") if m in sys.modules],
    "damaged": sum("damaged" in e for e in events),
}}))
"""
TC = """y = polyc.compile("def f(float(N, D) X) -> (O) {{ O(n) +=! X(n, d) * X(n, d) }}")(x)"""
BOUND = """
w = np.ones((64, 4), np.float32)
y = polyc.compile("def g(float(M, K) X, float(N, K) W) -> (Y) {{ Y(m, n) +=! X(m, k) * W(n, k) }}").bind(W=w)(x)
"""
FUNCTION = """
@polyc.op
def f(X):
    O[n] += X[n, d] * X[n, d]
    return O
y = f(x)
"""
EINSUM = """y = polyc.einsum_operator("nd,nd->n")(x, x)"""
BODIES = {"tc": TC.replace("{{", "{").replace("}}", "}"), "bound": BOUND.replace("{{", "{").replace("}}", "}")}
BODIES |= {"function": FUNCTION, "einsum": EINSUM}


def start(script: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output)


def write_script(tmp_path: Path, name: str) -> Path:
    script = tmp_path / f"{name}.py"
    script.write_text(RUN.replace("{body}", BODIES[name]).replace("{{", "{").replace("}}", "}"))
    return script


@pytest.mark.parametrize("name", BODIES)
def test_fresh_process_does_without_the_compiler(tmp_path: Path, name: str) -> None:
    script = write_script(tmp_path, name)
    cold = finish(start(script))
    assert cold["hits"] == 0 and cold["misses"] >= 2 and "islpy" in cold["loaded"]
    warm = finish(start(script))
    hits = cold["misses"] - 1  # the self-test is for what is compiled
    assert warm == {**cold, "hits": hits, "misses": 0, "loaded": []}


WARM = """
import sys, numpy as np
x = np.arange(12, dtype=np.float32).reshape(3, 4)
before = set(sys.modules)
import polyc
{body}
print(*sorted(set(sys.modules) - before))
"""
CALLED = {
    "tc": """
api: call_signature bind chunked dynamic functions gradients kernels layouts names operator result_shapes sources
cache: keys places store values
codegen: objects.calibration_file
codegen: objects objects.call_loader objects.elf objects.host objects.loader objects.pool objects.pool_layout
driver: loading lock shapes
ir: custom_rules expr factors halves number_checks operators program ragged signature text traced types
poly: storage
recall: entries facts glue kernels machine
runtime: arguments arrays call_self_test fastcalls kernel memory packing pages plain plan plan_table scalar_tables sizes
runtime: threads weak
""",
    "function": "recall: functions",
    "einsum": """
frontends: einsum
ir: contraction_paths
""",
}
"""What it takes to find a kernel and to call it: of a text, and what a function and an einsum take beside that."""
AT_ROOT = {
    "tc": "call_layout config crash diagnostics digest environment limits live log records",
    "function": "",
    "einsum": "",
}


@pytest.mark.parametrize("name", CALLED)
def test_a_process_that_finds_its_kernel_imports_little(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.delenv("POLYC_MACHINE", raising=False)
    script = tmp_path / "warm.py"
    script.write_text(WARM.replace("{body}", BODIES[name]))
    command = [sys.executable, str(script)]
    for _ in range(2):
        found = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    known = {"polyc"}
    for kind in ("tc", name):
        known |= {f"polyc.{module}" for module in AT_ROOT[kind].split()}
        for line in CALLED[kind].strip().splitlines():
            layer, names = line.split(":")
            known |= {f"polyc.{layer}", *(f"polyc.{layer}.{module}" for module in names.split())}
    assert {name for name in found if name.partition(".")[0] == "polyc"} <= known
    assert not found & {"logging", "hashlib", "subprocess", "tempfile", "traceback", "difflib", "sysconfig", "ctypes.util"}
    assert not found & {"pathlib", "urllib.parse", "numpy.typing", "threading", "socket", "platformdirs", "opt_einsum"}


def test_four_processes_write_the_same_entries(tmp_path: Path, cache_dir: Path) -> None:
    script = write_script(tmp_path, "tc")
    found = [finish(p) for p in [start(script) for _ in range(4)]]
    assert {f["sum"] for f in found} == {506.0}
    assert sum(f["damaged"] for f in found) == 0
    assert len(list((cache_dir / "entries").iterdir())) == 6  # the machine is one, its self-test another, the way of calls too
    assert finish(start(script))["misses"] == 0


def test_processes_read_write_and_remove_at_once(tmp_path: Path, cache_dir: Path) -> None:
    """Every read gives nothing or the whole of what was written under that name."""
    script = tmp_path / "hammer.py"
    script.write_text(
        "import json, random, sys\n"
        "from pathlib import Path\n"
        "from polyc.cache import Entry, Key, Store\n"
        f"store = Store(Path({str(cache_dir)!r}), 30_000)\n"
        "draw, found = random.Random(int(sys.argv[1])), 0\n"
        "for _ in range(400):\n"
        "    n = draw.randrange(20)\n"
        "    key = Key('kernel', 'f', 'ab' * 32, (('n', str(n)),))\n"
        "    if draw.random() < 0.4:\n"
        "        store.write(key, Entry({'n': n}, bytes([n]) * 2000))\n"
        "    elif draw.random() < 0.02:\n"
        "        store.clear()\n"
        "    else:\n"
        "        entry = store.read(key)\n"
        "        assert entry is None or (entry.header['n'], entry.payload) == (n, bytes([n]) * 2000)\n"
        "        found += entry is not None\n"
        "print(json.dumps(found))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, str(script), str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    results = [p.communicate(timeout=300) for p in processes]
    assert [p.returncode for p in processes] == [0] * 4, results
    assert all("damaged" not in errors for _, errors in results), results
    assert sum(int(output) for output, _ in results) > 0
    assert [p for p in (cache_dir / "entries").iterdir() if p.suffix == ".tmp"] == []


def test_directory_that_may_only_be_read_serves_hits(tmp_path: Path, cache_dir: Path) -> None:
    script = write_script(tmp_path, "tc")
    finish(start(script))
    (cache_dir / "entries").chmod(0o500)
    try:
        assert finish(start(script))["misses"] == 0
    finally:
        (cache_dir / "entries").chmod(0o700)
