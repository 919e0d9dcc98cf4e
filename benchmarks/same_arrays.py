"""Machine code of two checkouts in one process, on the same arrays: what differs is the code, not where memory lies."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"bool": "?", "float": "f4", "double": "f8"} | {
    f"{u}int{b}_t": f"{u or 'i'}{b // 8}" for u in ("", "u") for b in (8, 16, 32, 64)
}
PAGE = 4096


class CannotCompare(Exception):
    """The kernels cannot run on the same arrays; the text says why."""


class Entry:
    """A kernel of a shared library, as its header describes it."""

    def __init__(self, library: str, header: str) -> None:
        name = re.search(r"int32_t (\w+)\(void", header)
        listed = re.search(r"sizes_and_strides: .*\n((?: \*   \[\d+\] .*\n)*)", header)
        assert name is not None
        assert listed is not None
        functions = ctypes.CDLL(library)
        self.run, self.workspace = getattr(functions, name[1]), getattr(functions, f"{name[1]}_workspace")
        self.workspace.restype = ctypes.c_int64
        self.arrays = re.findall(r"\[\d+\] (const )?(\w+) ([\w.]+)((?:\[[^\]]+\])*): ([^\n]+)", header)
        self.numbers = re.findall(r"\[\d+\] (\S+)", listed[1])

    def prepare(self, arrays: Mapping[str, np.ndarray], threads: int) -> Any:
        """A call on `arrays`."""
        numbers = dict.fromkeys(self.numbers, 0)
        for _, _, name, extents, _ in self.arrays:
            numbers |= {
                e: n for e, n in zip(re.findall(r"\[([^\]]+)\]", extents), arrays[name].shape, strict=True) if e in numbers
            }
            numbers |= {f"{name}.stride{d}": s for d, s in enumerate(arrays[name].strides)}
        data = (ctypes.c_void_p * len(self.arrays))(*(arrays[a[2]].ctypes.data for a in self.arrays))
        values = (ctypes.c_int64 * max(1, len(self.numbers)))(*(numbers[n] for n in self.numbers))
        memory = np.zeros(self.workspace(values, threads) + PAGE, np.uint8)
        begin = memory.ctypes.data + -memory.ctypes.data % PAGE
        error = (ctypes.c_int64 * 3)()

        def call(keep: Any = (arrays, memory)) -> None:
            if failed := self.run(data, values, ctypes.c_void_p(begin), error, ctypes.c_int32(threads)):
                raise CannotCompare(f"check {failed} failed: {list(error)}")

        return call


def compare(
    libraries: Sequence[tuple[str, str]], inputs: Mapping[str, np.ndarray], rounds: int, threads: int, seconds: float
) -> tuple[list[float], bool]:
    """The first kernel's time over the second's, round by round; and whether their results agree."""
    entries = [Entry(*each) for each in libraries]
    if entries[0].arrays != entries[1].arrays:
        raise CannotCompare("their arguments differ")
    given, arrays, results = list(inputs.values()), {}, []
    for const, kind, name, _, mode in entries[0].arrays:
        if const:
            arrays[name] = np.asarray(inputs[name] if name in inputs else given[len(arrays)], order="C")
            continue
        if mode != "written":
            raise CannotCompare(f"{name} is {mode}")
        results.append((name, kind))
    extents: dict[str, int] = {}
    for const, _, name, declared, _ in entries[0].arrays:
        if const:
            found = re.findall(r"\[([^\]]+)\]", declared)
            if len(found) != arrays[name].ndim:
                raise CannotCompare(f"{name} is {declared}")
            extents |= zip(found, arrays[name].shape, strict=True)
    for name, kind in results:
        shape = re.findall(r"\[([^\]]+)\]", next(a[3] for a in entries[0].arrays if a[2] == name))
        if not all(e.isdigit() or e in extents for e in shape) or kind not in TYPES:
            raise CannotCompare(f"{name} is {kind}[{', '.join(shape)}]")
        arrays[name] = np.zeros([int(e) if e.isdigit() else extents[e] for e in shape], TYPES[kind])
    calls = [entry.prepare(arrays, threads) for entry in entries]
    calls[0]()
    expected = {name: arrays[name].copy() for name, _ in results}
    for name, _ in results:
        arrays[name].fill(1)
    calls[1]()
    agrees = all(
        np.allclose(expected[n], arrays[n], rtol=1e-3, atol=1e-4 * float(np.abs(expected[n]).max(initial=0)), equal_nan=True)
        for n, _ in results
    )
    once = min(_time(calls[0], 1), _time(calls[0], 1))
    repetitions = max(1, min(200, int(seconds / once)))
    ratios = []
    for k in range(rounds):
        turn = {side: _time(calls[side], repetitions) for side in ((0, 1), (1, 0))[k % 2]}
        ratios.append(turn[0] / turn[1])
    return ratios, agrees


def _time(call: Any, repetitions: int) -> float:
    """The median of so many, after one that is not counted."""
    call()
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repetitions // 2]


def link(objects: Path) -> str:
    """A shared library of an object file."""
    import subprocess

    library = str(objects.with_suffix(".so"))
    subprocess.run(["cc", "-shared", "-o", library, str(objects), "-fopenmp", "-lm"], check=True, capture_output=True)
    return library
