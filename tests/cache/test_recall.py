"""A hit gives what a compilation gives: results, errors, remarks, texts; and nothing but a hit avoids one."""

from __future__ import annotations

import random
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver, environment, recall
from polyc.api.sources import FixedSource
from polyc.cache import Store, store
from polyc.codegen.objects import host, self_test
from polyc.codegen.objects.host import host_target
from polyc.config import Options
from polyc.ir.text import format_program
from polyc.machine import Machine, select_model
from polyc.machine.calibration import FITTED
from polyc.recall import entries, kernels, machine
from tests.golden.programs import PROGRAMS
from tests.golden.test_texts import ERRORS

LAYER = """def layer(float(M, K) X, float(N, K) W, float(N) b) -> (Y) {
  H(m, n) +=! X(m, k) * W(n, k)
  Y(m, n) = fmax(H(m, n) + b(n), 0.0)
}
"""
LOOK = "def look(float(V) T, int32(N) I) -> (O) {\n  O(i) = T(I(i))\n}\n"
RNG = np.random.default_rng(0)
X, W, B = (RNG.standard_normal(s, dtype=np.float32) for s in ((9, 20), (17, 20), (17,)))
EXPECTED = np.maximum(X @ W.T + B, 0)


def files(directory: Path, kind: str = "") -> list[Path]:
    return sorted((directory / "entries").glob(f"{kind}*.entry"))


def rendered(action) -> str:
    with pytest.raises(polyc.PolycError) as caught:
        action()
    return str(caught.value)


# --- Hits and misses -------------------------------------------------------------------------------------------------


def test_second_operator_compiles_nothing(calls) -> None:
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert calls == ["read_tc_with_warnings", "infer_shapes", "lower"]
    calls.clear()
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert calls == []


def test_hits_and_misses_are_in_the_log(log) -> None:
    polyc.compile(LAYER)(X, W, B)
    polyc.compile(LAYER)(X, W, B)
    lines = [r.message for r in log.records if r.message.startswith("cache:")]
    assert [" ".join(line.split()[:3]) for line in lines] == [
        *["cache: miss: source", "cache: miss: shapes", "cache: miss: kernel"],
        *["cache: hit: source", "cache: hit: shapes", "cache: hit: kernel"],
    ]
    log.clear()
    polyc.compile(LAYER)(X[:8], W, B)
    assert any("sizes K=20, M=8, N=17, there K=20, M=9, N=17" in r.message for r in log.records)


def test_self_test_runs_once_for_a_machine_and_only_before_code_is_made(monkeypatch, cache_dir) -> None:
    tested: list[Machine] = []
    monkeypatch.setattr(self_test, "check_code", tested.append)
    for expected in (1, 1, 1):
        monkeypatch.setattr(machine, "_tested", set())  # as in another process
        polyc.compile(LAYER)(X, W, B)
        polyc.compile(LAYER)(X[:expected], W, B)
        assert len(tested) == expected
    assert len(files(cache_dir, "self-test")) == 1
    for level in ("x86-64-v2", "aarch64"):  # code for other machines is not run
        recall.check_code_generator(select_model(host_target(), level))
    assert [t.name for t in tested] == [host_target().name, "x86-64-v2"]


def test_wrong_code_of_this_llvm_is_an_error_of_each_compilation(monkeypatch, cache_dir) -> None:
    monkeypatch.setattr(machine, "_tested", set())
    monkeypatch.setattr(self_test, "find_faults", lambda target: ["gathered"])
    for _ in range(2):
        expected = rf"makes wrong code for {host_target().name}: 1 of 12 tests fail \(gathered\)"
        with pytest.raises(polyc.UnsupportedError, match=expected):
            polyc.compile(LAYER)(X, W, B)
    assert files(cache_dir, "self-test") == files(cache_dir, "kernel") == []


def test_each_part_of_the_key_matters(calls, monkeypatch) -> None:
    monkeypatch.delenv("POLYC_MACHINE", raising=False)
    program = driver.read_tc(LAYER)[0]

    def compiles(program=program, **arguments) -> bool:
        calls.clear()
        recall.compile_program(program, **arguments)
        return "lower" in calls

    sizes = {"M": 8, "N": 16, "K": 32}
    strides = ((128, 4), (128, 4), (4,), (64, 4))
    variants = [
        {},
        {"sizes": sizes},
        {"sizes": {**sizes, "M": 9}},
        {"sizes": sizes, "strides": strides},
        {"sizes": sizes, "strides": (None, *strides[1:])},
        {"sizes": sizes, "strides": ((None, 4), *strides[1:])},
        {"sizes": sizes, "options": Options(parallel=False)},
        {"sizes": sizes, "options": Options(target="x86-64-v2")},
        {"sizes": sizes, "constants": ("W",)},
        {"typical": sizes},
        {"program": driver.read_tc(LAYER.replace("0.0", "1.0"))[0], "sizes": sizes},
    ]
    assert [compiles(**v) for v in variants] == [True] * len(variants)
    assert [compiles(**v) for v in variants] == [False] * len(variants)
    assert not compiles(sizes=sizes, options=Options(verify=True))
    assert not compiles(sizes=dict(reversed(sizes.items())))
    monkeypatch.setenv("POLYC_MACHINE", "zen3")
    assert compiles(sizes=sizes)


def test_every_option_and_every_property_of_the_machine_makes_another_key(monkeypatch) -> None:
    """Code for one value would else be found for another one, which no result tells where both are right, or nearly."""
    monkeypatch.delenv("POLYC_MACHINE", raising=False)
    request = kernels.Request(driver.read_tc(LAYER)[0], {"M": 8, "N": 16, "K": 32}, None, (), Options())

    def other(value: Any) -> Any:
        return {bool: not value, tuple: ("x",), str: f"{value}x"}[type(value)]

    keys = {"": request.key()}
    for option in fields(Options):
        options = replace(Options(), **{option.name: other(getattr(Options(), option.name))})
        keys[f"option {option.name}"] = replace(request, options=options).key()
    assert keys.pop("option verify") == keys[""]
    known, sizes = host.facts(), host.read_cache_sizes()
    changes: dict[str, tuple[str, Any]] = {
        "triple": ("_known", [replace(known, triple="x86_64-pc-linux")]),
        "features": ("_known", [replace(known, features=known.features[1:])]),
        "LLVM": ("_known", [replace(known, version="LLVM 1")]),
        "caches": ("read_cache_sizes", lambda: {**sizes, 2: 3 << 20}),
        "cores": ("count_cores", lambda: 77),
        "calibration": ("host_calibration", lambda: FITTED),
        "name": ("machine_name", lambda: "zen3"),
    }
    for what, (name, value) in changes.items():
        with monkeypatch.context() as patched:
            patched.setattr(host, name, value)
            host._describe_host.cache_clear()
            keys[f"machine's {what}"] = request.key()
    host._describe_host.cache_clear()
    assert len({key.parts for key in keys.values()}) == len(keys)


def test_another_version_is_a_miss(calls, monkeypatch) -> None:
    polyc.compile(LAYER)(X, W, B)
    calls.clear()
    monkeypatch.setattr(entries, "VERSION", "9.9.9")
    polyc.compile(LAYER)(X, W, B)
    assert calls == ["read_tc_with_warnings", "infer_shapes", "lower"]


def test_edited_package_is_a_miss_and_stores_nothing(calls, monkeypatch, cache_dir, log) -> None:
    monkeypatch.setattr(entries, "package_state", lambda: "edited meanwhile")
    polyc.compile(LAYER)(X, W, B)
    assert files(cache_dir) == []
    assert "files have changed" in log.text
    monkeypatch.setattr(entries, "_PACKAGE", "edited meanwhile")
    polyc.compile(LAYER)(X, W, B)
    assert len(files(cache_dir)) == 3


def test_package_state_notices_an_edit(tmp_path, monkeypatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.py").write_text("1")
    monkeypatch.undo()  # the state that all other tests here see
    monkeypatch.setattr(entries, "__file__", str(tmp_path / "recall" / "entries.py"))
    before = entries.package_state()
    assert entries.package_state() == before
    (tmp_path / "below" / "a.py").write_text("12")
    assert entries.package_state() != before


@pytest.mark.parametrize("variable, value", [("POLYC_CACHE", "0"), ("POLYC_DEBUG", "1")])
def test_cache_is_off(calls, cache_dir, monkeypatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    for _ in range(2):
        polyc.compile(LAYER)(X, W, B)
    assert calls.count("lower") == 2
    assert not cache_dir.exists()


def test_fault_of_a_rung_is_not_kept(cache_dir, monkeypatch, log) -> None:
    from polyc.scheduler.rows import ilp

    def fail(*args: object) -> None:
        raise MemoryError("not today")

    monkeypatch.setattr(ilp, "schedule_statements", fail)
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert files(cache_dir, "kernel") == []
    assert "is not stored: a part of the compiler failed" in log.text


# --- Everything that compiles ----------------------------------------------------------------------------------------


def test_function(calls) -> None:
    text = "def total(X):\n    S[n] += X[n, d]\n    return S\n"
    first = polyc.op(text)(X)
    assert calls.count("lower") == 1
    np.testing.assert_array_equal(polyc.op(text)(X), first)
    assert calls.count("lower") == 1
    polyc.op(text)(X.astype(np.float64))
    assert calls.count("lower") == 2


def test_einsum(calls) -> None:
    first = polyc.einsum_operator("mk,nk->mn")(X, W)
    polyc.api.functions.forget_einsums()
    np.testing.assert_array_equal(polyc.einsum_operator("mk,nk->mn")(X, W), first)
    assert calls.count("lower") == 1


def test_symbolic_sizes(calls) -> None:
    for _ in range(2):
        operator = polyc.compile(LAYER, dynamic=True)
        for rows in (0, 1, 9):
            np.testing.assert_allclose(operator(X[:rows], W, B), EXPECTED[:rows], rtol=1e-5, atol=1e-5)
    assert calls.count("lower") == 1
    assert calls.count("infer_extents") == 1


def test_bound_inputs_and_their_preparations(calls) -> None:
    w = RNG.standard_normal((64, 256), dtype=np.float32)
    b, x = w[:, 0].copy(), RNG.standard_normal((50, 256), dtype=np.float32)

    def scaled():
        return polyc.compile(
            """def scaled(float(M, K) X, float(N, K) W, float(N) s) -> (Y) {
              V(n, k) = W(n, k) * exp(s(n))
              Y(m, n) +=! X(m, k) * V(n, k)
            }"""
        ).bind(W=w, s=b)

    cold = scaled()
    first = cold(x)
    np.testing.assert_allclose(first, x @ (w * np.exp(b)[:, None]).T, rtol=1e-3, atol=1e-3)
    assert calls.count("lower") >= 2, "nothing was prepared"
    calls.clear()
    warm = scaled()
    np.testing.assert_array_equal(warm(x), first)
    assert calls == []
    assert warm._kernels.preparations.n_runs == cold._kernels.preparations.n_runs > 0
    # Other weights are prepared by the same code.
    other = scaled().__class__(FixedSource(warm.program), "scaled", Options(), bound={"W": 2 * w, "s": b})
    np.testing.assert_allclose(other(x), 2 * first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_golden_program_is_stored_and_the_same_again(program, calls, cache_dir) -> None:
    (read,) = driver.read_tc(program.text)
    cold = recall.compile_program(read, sizes=program.sizes, constants=read.parameters[1:2])
    warm = recall.compile_program(driver.read_tc(program.text)[0], sizes=program.sizes, constants=read.parameters[1:2])
    assert calls == ["lower"]
    assert isinstance(cold, driver.Lowered) and isinstance(warm, recall.Recalled)
    assert warm.object_code() == cold.object_code()
    assert warm.c_header() == cold.c_header()
    assert warm.signature == cold.signature
    assert [c.span for c in warm.signature.host_checks] == [c.span for c in cold.signature.host_checks]
    assert [g.span for g in warm.signature.guards] == [g.span for g in cold.signature.guards]
    assert warm.remarks == cold.remarks
    assert [r.span for r in warm.remarks] == [r.span for r in cold.remarks]
    assert [format_program(p) for p in warm.preparations] == [format_program(p) for p in cold.preparations]
    assert dict(warm.panels) == dict(cold.panels)


def test_remarks_of_the_operator_survive() -> None:
    cold, warm = polyc.compile(LAYER), polyc.compile(LAYER)
    cold(X, W, B)
    warm(X, W, B)
    assert cold.remarks == warm.remarks
    assert any(r.pass_name == "schedule" for r in warm.remarks)


def test_stages_of_a_hit_are_made_when_asked_for(calls) -> None:
    polyc.compile(LAYER)(X, W, B)
    calls.clear()
    found = polyc.compile(LAYER).compiled(X, W, B)
    assert calls == []
    text = found.as_text("loops")
    assert calls == ["lower"]
    lowered = polyc.compile(LAYER).lower(X, W, B)
    assert text == lowered.as_text("loops")
    assert found.explain() == lowered.explain() and found.summary() == lowered.summary()
    assert found.as_text("s") == lowered.as_text("s")


# --- Errors and warnings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_the_same_from_a_hit(name: str) -> None:
    cold = rendered(ERRORS[name])
    polyc.api.functions.forget_einsums()
    assert rendered(ERRORS[name]) == cold


def test_runtime_check_of_a_hit_points_at_the_source_at_hand(calls) -> None:
    table, indices = np.arange(3, dtype=np.float32), np.array([0, 7], np.int32)
    cold = rendered(lambda: polyc.compile(LOOK)(table, indices))
    assert calls.count("lower") == 1
    assert rendered(lambda: polyc.compile(LOOK)(table, indices)) == cold
    moved = rendered(lambda: polyc.compile("# a comment\n\n" + LOOK)(table, indices))
    assert calls.count("lower") == 1
    assert moved == cold.replace("<string>:2:", "<string>:4:").replace("\n2 |", "\n4 |")
    assert "4 |   O(i) = T(I(i))" in moved


def test_words_of_the_source_are_the_user_s_own(calls) -> None:
    table, indices = np.arange(3, dtype=np.float32), np.array([0, 7], np.int32)
    plain = rendered(lambda: polyc.compile(LOOK.replace("I(i)", "I(i) + 1"))(table, indices))
    spaced = rendered(lambda: polyc.compile(LOOK.replace("I(i)", "I( i )   +1"))(table, indices))
    assert calls.count("lower") == 2
    assert plain != spaced


def test_precondition_of_a_hit() -> None:
    window = "def window(float(N) x, float(K) k) -> (y) {\n  y(i) +=! x(i + j) * k(j)\n}\n"

    def call():
        return polyc.compile(window).specialize()(np.ones(2, np.float32), np.ones(5, np.float32))

    assert rendered(call) == rendered(call)


def test_warnings_of_the_source_come_again() -> None:
    text = "def mm(float(M, K) A, float(K, N) B) -> (C) {\n  C(m, n) +=! A(m, kk) * B(k, n)\n}\n"

    def found() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            polyc.compile(text)
        return [str(w.message) for w in caught]

    cold = found()
    assert cold and found() == cold


def test_size_that_is_no_number_of_bytes_is_a_warning(monkeypatch) -> None:
    monkeypatch.setenv("POLYC_CACHE_SIZE", "plenty")
    monkeypatch.setattr(environment, "_told", set())
    with pytest.warns(polyc.PolycWarning, match="argument-environment") as caught:
        np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert caught[0].filename == __file__


# --- Results over inputs ---------------------------------------------------------------------------------------------

DOUBLE = "def twice(float(N) A) -> (B) { B(i) = A(i) * 2.0 }"
REVERSE = "def reverse(float(N) A, float(N) C) -> (B) { B(i) = A(N - 1 - i) + C(i) }"


def test_result_over_an_input(calls) -> None:
    for _ in range(2):
        a = np.arange(5, dtype=np.float32)
        polyc.compile(DOUBLE)(a, out=a)
        np.testing.assert_array_equal(a, [0, 2, 4, 6, 8])
    assert calls.count("lower") == 1


def test_refusal_of_a_result_over_an_input_is_the_same() -> None:
    a, c = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    cold = rendered(lambda: polyc.compile(REVERSE)(a, c, out=a))
    assert rendered(lambda: polyc.compile(REVERSE)(a, c, out=a)) == cold


def test_aliases_that_were_not_asked_for_are_proved_when_they_come(calls) -> None:
    a, c = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    one_by_one = {"vectorize": False}  # the last of several vectors may be moved back over results, which is refused
    polyc.compile(REVERSE, **one_by_one)(a, c)
    kernel = polyc.compile(REVERSE, **one_by_one).specialize(a, c)
    calls.clear()
    expected = a[::-1] + c
    with pytest.raises(polyc.UnsupportedError):
        kernel(a, c, out=a)
    kernel(a, c, out=c)
    np.testing.assert_array_equal(c, expected)
    assert calls == ["lower"]


def test_proof_about_other_loops_does_not_count(monkeypatch) -> None:
    a, c = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    polyc.compile(REVERSE)(a, c)
    kernel = polyc.compile(REVERSE).specialize(a, c)
    real = driver.lower
    monkeypatch.setattr(driver, "lower", lambda program, **o: real(program, **{**o, "sizes": {"N": 6}}))
    with pytest.raises(polyc.UnsupportedError):
        kernel(a, c, out=c)


# --- Damage ----------------------------------------------------------------------------------------------------------


def test_damaged_entries_are_compiled_again(calls, cache_dir) -> None:
    draw = random.Random(1)
    polyc.compile(LAYER)(X, W, B)
    for path in files(cache_dir):
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 4
        path.write_bytes(content)
    calls.clear()
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert calls == ["read_tc_with_warnings", "infer_shapes", "lower"]
    calls.clear()
    polyc.compile(LAYER)(X, W, B)
    assert calls == []


@pytest.mark.parametrize(
    "header", [{}, {"value": None}, {"value": [1, 2]}, {"value": {"Const": []}}, {"value": [{"Span": 99}]}]
)
def test_whole_entry_that_makes_no_sense_is_compiled_again(calls, cache_dir, monkeypatch, log, header) -> None:
    polyc.compile(LAYER)(X, W, B)
    real = Store.read

    def read(self, key):
        entry = real(self, key)
        return None if entry is None else replace(entry, header=header)

    calls.clear()
    monkeypatch.setattr(Store, "read", read)
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert calls == ["read_tc_with_warnings", "infer_shapes", "lower"]
    assert log.text.count("makes no sense and is removed") == 3


def test_place_that_cannot_be_written(tmp_path, monkeypatch, calls, log) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path / "file" / "below"))
    for _ in range(2):
        np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
    assert calls.count("lower") == 2
    assert log.text.count("nothing can be stored") == 1


def test_no_home_is_no_error(monkeypatch, calls) -> None:
    monkeypatch.delenv("POLYC_CACHE_DIR")
    monkeypatch.setattr("polyc.config._user_cache", lambda xdg, home: None)
    assert store.open_store() is None
    np.testing.assert_allclose(polyc.compile(LAYER)(X, W, B), EXPECTED, rtol=1e-5, atol=1e-5)
