"""The memory that the runner prints is what a call takes: measured by the resident pages of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import gc, sys, threading
import polyc
from benchmarks import sides
from benchmarks.workloads import WORKLOADS

def resident(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(key))

workload = WORKLOADS[sys.argv[1]]
arrays = workload.inputs()
polyc.set_num_threads(1)
operator = sides.make_operator(workload)
out = operator(**arrays)
grown = []

def call():  # a thread has a workspace of its own
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins here
    before = resident("VmRSS")
    operator(**arrays, out=out)
    grown.append(resident("VmHWM") - before)

for _ in range(3):
    polyc.memory.release()
    gc.collect()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
print(min(grown), sides.kept_memory("polyc"), sides.planned_memory("polyc", workload, 1))
"""

COUNTED_TOGETHER = 1 << 20
"""Pages that the system counts late."""

ROUNDED = 1 << 16
"""Guards around a workspace, and the least that is taken."""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="resident pages are read as Linux tells them")
@pytest.mark.parametrize(("name", "as_written"), [("attention_2048", 12 * 2048 * 2048 * 4), ("blur_plane", 4096 * 4096 * 4)])
def test_a_call_takes_no_more_than_results_and_tile_buffers(name: str, as_written: int):
    run = subprocess.run([sys.executable, "-c", MEASURE, name], capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, run.stderr
    grown, kept, planned = map(int, run.stdout.split())
    assert grown <= kept + COUNTED_TOGETHER < as_written / 10
    assert planned <= kept <= planned + planned // 4 + ROUNDED
