"""Planned calls through compiled code: the same results, refusals and errors as through Python, under threads and forks too."""

from __future__ import annotations

import ctypes
import gc
import inspect
import os
import pickle
import sys
import threading
import warnings

import numpy as np
import pytest
import threadpoolctl

import polyc
from polyc import ArgumentError, ArgumentTypeError, BoundsError, PolycError
from polyc.codegen.objects.call_loader import PYTHON_FUNCTIONS, load_call
from polyc.ir.signature import RuntimeGuard, Signature
from polyc.ir.types import DTYPES
from polyc.runtime import fastcalls, memory, threads
from polyc.runtime.kernel import Kernel
from polyc.runtime.plain import PlainArguments
from polyc.runtime.sizes import Formal
from tests.runtime.test_kernel import ENTRY, WORKSPACE, add_kernel, make_kernel, spec
from tests.runtime.test_plain import GENERIC, NUMBERS

X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def native():
    fastcalls.offer(PYTHON_FUNCTIONS, load_call)
    assert fastcalls.is_available()


def warm_kernel(*arrays, out=None, **options):
    kernel = add_kernel(**options)
    for _ in range(3):
        kernel(*arrays, out=out)
    return kernel


def test_a_known_layout_is_found_by_compiled_code():
    kernel = warm_kernel(X, B)
    np.testing.assert_array_equal(kernel._plans.call(X + 1, B), X + 1 + B)
    out = np.zeros_like(X)
    warm = warm_kernel(X, B, out=out)
    out[...] = 0
    assert warm._plans.call_into(X, B, out) is out
    np.testing.assert_array_equal(out, X + B)


@pytest.mark.parametrize(
    "arrays",
    [
        (),
        (X,),
        (X, B, B),
        (X, None),
        (X.tolist(), B),
        (X.astype("f8"), B),
        (X.astype(">f4"), B),
        (X.view("i4"), B),
        (np.asfortranarray(X), B),
        (X[::-1], B),
        (X[:2], B),
        (X[0], B),
        (X.view(np.recarray), B),
        (np.ma.masked_array(X), B),
    ],
)
def test_other_arguments_are_left_to_python(arrays):
    assert warm_kernel(X, B)._plans.call(*arrays) is None


def test_unaligned_inputs_are_left_to_python():
    raw = np.zeros(49, np.uint8)
    x = raw[1:].view(np.float32).reshape(3, 4)
    x[...] = X
    kernel = warm_kernel(X, B)
    assert kernel._plans.call(x, B) is None
    np.testing.assert_array_equal(kernel(x, B), X + B)


def test_unaligned_inputs_and_results_need_the_full_checks_without_compiled_calls_too(monkeypatch):
    monkeypatch.setattr(fastcalls._state, "native", None)
    x, out = (np.zeros(49, np.uint8)[1:].view(np.float32).reshape(3, 4) for _ in range(2))
    kernel, aligned = warm_kernel(X, B), np.zeros_like(X)
    kernel(X, B, out=aligned)
    assert kernel._plans.run((X, B)) is not None and kernel._plans.run((X, B), (aligned,)) is not None
    assert kernel._plans.run((x, B)) is None and kernel._plans.run((X, B), (out,)) is None


def test_errors_are_those_of_the_first_call():
    kernel = warm_kernel(X, B)
    with pytest.raises(ArgumentTypeError, match="expected type float32"):
        kernel(X.astype("f8"), B)
    with pytest.raises(ArgumentError, match="b has 3 elements"):
        kernel(X, B[:3])
    out = np.zeros_like(X)
    kernel = warm_kernel(X, B, out=out)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(X, B, out=out)


def test_overlap_of_out_is_still_refused():
    x = np.zeros((8, 4), np.float32)
    kernel = warm_kernel(x[:3], B, out=x[3:6])
    with pytest.raises(ArgumentError, match="memory"):
        kernel(x[:3], B, out=x[2:5])
    np.testing.assert_array_equal(kernel(x[:3], B, out=x[4:7]), np.broadcast_to(B, (3, 4)))


def test_an_alias_is_asked_for_once_and_only_where_it_is_one():
    asked = []
    x = np.zeros((3, 4), np.float32)
    kernel = warm_kernel(x, B, out=x, alias_is_safe=lambda out, source: asked.append(source) or True)
    assert asked == ["X"]
    np.testing.assert_array_equal(x, 3 * np.broadcast_to(B, (3, 4)))
    assert kernel._plans.call_into(x, B, np.zeros_like(x)) is None  # planned for the alias only
    assert kernel._plans.call_into(x, B, x) is x


def test_element_types_that_are_equal_are_one_type():
    kernel = warm_kernel(X, B)
    other = pickle.loads(pickle.dumps(X))
    copied = np.frombuffer(X.tobytes(), np.dtype(np.float32, copy=True)).reshape(3, 4)
    for x in (other, copied):
        np.testing.assert_array_equal(kernel._plans.call(x, B), X + B)


def test_several_results_and_a_tuple_of_outs():
    def body(views, sizes, place, error):
        views[1][...], views[2][...] = views[0].sum(), views[0].max(axis=1)

    kernel = make_kernel(body, spec("X", "M N"), spec("s", "", "output"), spec("m", "M", "output"))
    for _ in range(3):
        s, m = kernel(X)
    s, m = kernel._plans.call(X)
    assert s == X.sum() and m.tolist() == X.max(axis=1).tolist()
    out = np.zeros((), np.float32), np.zeros(3, np.float32)
    for _ in range(3):
        s, m = kernel(X, out=out)
        assert s is out[0] and m is out[1]
    with pytest.raises(ArgumentError, match="expected 2 outputs"):
        kernel(X, out=out[:1])


def test_a_guard_raises_the_same_error_and_drops_the_result():
    def body(views, sizes, place, error):
        error[0], error[1], error[2] = 0, 12, sizes["N"]
        return int(views[0][0, 0])

    guard = RuntimeGuard("index I[i] is {value}, but T has {bound} rows")
    kernel = make_kernel(body, spec("X", "M N"), spec("Y", "M", "output"), guards=(guard,))
    fine, bad = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    for _ in range(3):
        kernel(fine)
    assert kernel._plans.call(fine) is not None
    out = np.zeros(3, np.float32)
    for _ in range(3):
        kernel(fine, out=out)
    counts = sys.getrefcount(bad), sys.getrefcount(out)
    for call in (lambda: kernel(bad), lambda: kernel(bad, out=out)):
        with pytest.raises(BoundsError, match=r"index I\[i\] is 12, but T has 4 rows"):
            call()
    assert (sys.getrefcount(bad), sys.getrefcount(out)) == counts


def test_many_layouts_are_all_found():
    kernel = add_kernel()
    shapes = [(m, n) for m in range(12) for n in range(12)]
    for _ in range(2):
        for m, n in shapes:
            kernel(np.ones((m, n), np.float32), np.ones(n, np.float32))
    for m, n in shapes:
        y = kernel._plans.call(np.ones((m, n), np.float32), np.ones(n, np.float32))
        assert y.shape == (m, n) and (y == 2).all()


def test_references_stay_balanced():
    kernel = warm_kernel(X, B)
    record = next(iter(kernel._plans._calls[0]._records.values()))
    gc.collect()  # what other tests left refers to None, and is given up at some time
    before, nones = [sys.getrefcount(o) for o in (X, B, record)], sys.getrefcount(None)
    for _ in range(10_000):
        kernel._plans.call(X, B)
        kernel._plans.call(X, X)
    assert [sys.getrefcount(o) for o in (X, B, record)] == before
    assert abs(sys.getrefcount(None) - nones) < 5000  # others count None too
    count = sys.getrefcount(kernel._plans.call(X, B))
    assert count == 1


@pytest.mark.parametrize("names", ["a", "b", "c", "ac", "bc", "abc"])
def test_bound_inputs_leave_no_call_to_python(names, monkeypatch):
    operator = polyc.compile("def f(float(N) a, float(N) b, float c) -> (y) { y(i) = a(i) - b(i) * c }")
    a, b, c = np.arange(4, dtype=np.float32), np.ones(4, np.float32), np.float32(3)
    values, expected, out = {"a": a, "b": b, "c": c}, a - b * c, np.zeros(4, np.float32)
    bound = operator.bind(**{n: values[n] for n in names})
    given = [values[n] for n in "abc" if n not in names]
    kernel = bound.specialize(*given)
    for call in (bound, kernel):
        for _ in range(3):
            call(*given)
            call(*given, out=out)
    del operator, bound
    counts = [sys.getrefcount(x) for x in (*given, out)]
    with monkeypatch.context() as patch:
        patch.delattr(Kernel, "_call_slowly")
        for _ in range(100):
            np.testing.assert_array_equal(kernel(*given), expected)
            out[...] = 0
            assert kernel(*given, out=out) is out
            np.testing.assert_array_equal(out, expected)
        with pytest.raises(AttributeError):
            kernel(*given, a)
    assert [sys.getrefcount(x) for x in (*given, out)] == counts
    for wrong in ((*given, a), (*given, a, a), given[1:] if given else (a,)):
        with pytest.raises(ArgumentError):
            kernel(*wrong)
        with pytest.raises(PolycError):
            kernel(*wrong, out=out)


def test_an_operator_with_more_arrays_than_compiled_calls_take():
    names = [f"a{n}" for n in range(70)]
    text = f"def f({', '.join(f'float(N) {n}' for n in names)}) -> (y) {{ y(i) = {' + '.join(f'{n}(i)' for n in names)} }}"
    x = np.ones(3, np.float32)
    bound = polyc.compile(text).bind(**dict.fromkeys(names[1:], x))
    for _ in range(3):
        np.testing.assert_array_equal(bound(x), [70] * 3)
        np.testing.assert_array_equal(bound(x, out=np.zeros(3, np.float32)), [70] * 3)


def test_a_kernel_may_be_forgotten_while_it_runs():
    inside, go_on = threading.Event(), threading.Event()
    is_slow = False

    def body(views, sizes, place, error):
        if is_slow:
            inside.set()
            assert go_on.wait(10)
        views[1][...] = 2 * views[0]

    kernel = make_kernel(body, spec("X", "M N"), spec("Y", "M N", "output"))
    for _ in range(3):
        kernel(X)
    call, plans, results = kernel._plans.call, kernel._plans, []
    is_slow = True
    thread = threading.Thread(target=lambda: results.append(call(X)))
    thread.start()
    assert inside.wait(10)
    plans.forget(kernel)
    del kernel
    gc.collect()
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(results[0], 2 * X)
    assert call(X) is None


def test_threads_that_plan_and_call_at_once():
    kernel, problems = add_kernel(), []
    gate = threading.Barrier(4)

    def work(seed):
        rng = np.random.default_rng(seed)
        gate.wait(10)
        for _ in range(300):
            m, n = rng.integers(1, 9, 2)
            x = np.full((m, n), rng.integers(100), np.float32)
            if not (kernel(x, np.ones(n, np.float32)) == x + 1).all():
                problems.append((m, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_calls_go_on_in_a_forked_child():
    kernel = warm_kernel(X, B)
    table = kernel._plans._calls[0]
    with table._lock:  # as if another thread had been planning
        child = os.fork()
        if child == 0:
            ok = (kernel(X, B) == X + B).all() and all(kernel(X[:2], B).shape == (2, 4) for _ in range(3))
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_it_calls_go_through_python(monkeypatch):
    monkeypatch.setattr(fastcalls._state, "native", None)
    kernel = warm_kernel(X, B)
    assert not kernel._plans._calls
    np.testing.assert_array_equal(kernel(X, B), X + B)
    out = np.zeros_like(X)
    for _ in range(3):
        assert kernel(X, B, out=out) is out
    with pytest.raises(ArgumentError):
        kernel(X, B[:3])


@pytest.mark.parametrize("problem", [RuntimeError, KeyError])
def test_code_that_cannot_be_loaded_is_done_without(monkeypatch, problem):
    def load(symbols):
        raise problem

    monkeypatch.setattr(fastcalls, "_state", fastcalls._State())
    fastcalls.offer(PYTHON_FUNCTIONS, load)
    assert not fastcalls.is_available()


def test_code_that_fails_its_self_test_is_not_used(monkeypatch):
    exports, keepalive = load_call(fastcalls.symbols(PYTHON_FUNCTIONS))
    wrong = {**exports, "polyc_probe": exports["polyc_probe_workspace"]}
    monkeypatch.setattr(fastcalls, "_state", fastcalls._State())
    fastcalls.offer(PYTHON_FUNCTIONS, lambda symbols: (wrong, keepalive))
    assert not fastcalls.is_available()


def recording_kernel(seen, workspace=0):
    """A kernel that notes its team and its workspace."""

    def entry(data, block, place, error, n_threads):
        seen.append((n_threads, place))
        return 0

    function, size_function = ENTRY(entry), WORKSPACE(lambda block, n: workspace)
    addresses = (ctypes.cast(f, ctypes.c_void_p).value for f in (function, size_function))
    arrays = spec("X", "M"), spec("Y", "M", "output")
    return Kernel(Signature("op", ("M",), (), arrays, (), ()), *addresses, (function, size_function))


def test_a_planned_call_has_the_team_that_is_set_last():
    seen = []
    kernel = recording_kernel(seen)
    threads.find_openmp()
    for n in (1, 3, 3, 2, 1, 4):
        with threads.limited_to(n):
            for _ in range(4):
                kernel(B)
            assert {team for team, _ in seen[-4:]} == {n}
    with threadpoolctl.threadpool_limits(3, user_api="openmp"), threads.limited_to(3):  # what OpenMP says from now on lowers it
        kernel(B)
        for n in (2, 1, 3):
            with threadpoolctl.threadpool_limits(n, user_api="openmp"):
                kernel(B)
                assert seen[-1][0] == threads.get_num_threads() and (seen[-1][0] == n or threads.find_openmp() is None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_planned_call_of_a_forked_child_has_the_threads_of_the_pool_or_one():
    seen = []
    kernel = recording_kernel(seen)
    threads.find_openmp()
    with threads.limited_to(2):
        for _ in range(4):
            kernel(B)
        child = os.fork()
        if child == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kernel(B)
            os._exit(seen[-1][0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (2 if threads.HAS_POOL else 1)


def test_planned_calls_of_threads_have_workspaces_of_their_own():
    seen, barrier = [], threading.Barrier(3)

    def work():
        mine, kernel = [], recording_kernel(places := [], 5000)
        for _ in range(30):
            barrier.wait()
            kernel(B)
            mine.append(places[-1][1])
        seen.append(set(mine))
        barrier.wait()  # all are alive until the end: no workspace is used again

    workers = [threading.Thread(target=work) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all(len(places) == 1 for places in seen) and len(set.union(*seen)) == 3


def test_a_workspace_that_was_given_up_is_not_used_again():
    seen = []
    kernel = recording_kernel(seen, 5000)
    for _ in range(3):
        kernel(B)
    polyc.memory.release()
    other = np.zeros(1 << 20, np.uint8)  # what the system may have given the memory to
    kernel(B)
    assert seen[-1][1] == memory.workspace_address(1) and not other.any()
    larger = recording_kernel(seen, 50_000)
    for _ in range(3):
        larger(B)
    assert seen[-1][1] == memory.workspace_address(50_000)
    done = threading.Thread(target=lambda: [kernel(B) for _ in range(3)])
    done.start()
    done.join()
    assert memory.known_area[0] == 0  # its thread is no more, and another may have its number


@pytest.mark.parametrize("shape", [(), (1,), (3, 0), (5, 7), (2, 3, 4)])
def test_small_results_are_arrays_like_any_others(shape):
    operator = polyc.compile("def f(float(N) a) -> (b) { b = a(0) }" if not shape else _SHAPED[len(shape)])
    a = np.zeros(shape or (1,), np.float32) + 3
    results = [operator(a) for _ in range(4)]
    assert all(r.shape == shape and r.dtype == np.float32 and r.flags.owndata and r.flags.c_contiguous for r in results)
    assert all((r == 3).all() for r in results) and len({id(r) for r in results}) == 4
    counts = sys.getrefcount(results[3].dtype)
    for _ in range(100):
        operator(a)
    assert abs(sys.getrefcount(results[3].dtype) - counts) < 50


_SHAPED = {
    1: "def f(float(N) a) -> (b) { b(i) = a(i) }",
    2: "def f(float(N,M) a) -> (b) { b(i,j) = a(i,j) }",
    3: "def f(float(N,M,K) a) -> (b) { b(i,j,k) = a(i,j,k) }",
}


def test_a_call_by_compiled_code_takes_what_a_call_takes():
    operator = polyc.compile("def f(float(N) a, float(N) b, float c) -> (y) { y(i) = a(i) - b(i) * c }")
    a, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    expected, out = a - b * 2, np.zeros(4, np.float32)
    bound = operator.bind(c=2.0)
    for call in (operator, operator.specialize(a, b, np.float32(2))):
        for _ in range(3):
            for result in (call(a, b, 2.0), call(a, b, 2.0, out=None), call(a, b=b, c=2.0), call(c=2.0, b=b, a=a)):
                np.testing.assert_array_equal(result, expected)
            for arguments, named in (((a, b, 2.0), {}), ((a, b), {"c": 2.0}), ((), {"c": 2.0, "b": b, "a": a})):
                assert call(*arguments, out=out, **named) is out
                np.testing.assert_array_equal(out, expected)
                out[...] = 0
            np.testing.assert_array_equal(call(a.tolist(), b, 2), expected)
            np.testing.assert_array_equal(bound(a, b), expected)
            assert bound(a, b, out=out) is out
            with pytest.raises(PolycError):
                call(a, b)
            with pytest.raises(PolycError):
                call(a, b, 2.0, out)
            with pytest.raises(PolycError):
                call(a, b, 2.0, d=1)
        names = list(inspect.signature(type(call).__call__).parameters)
        assert names in (["self", "inputs", "out", "named"], ["self", "arrays", "out", "named"])


@pytest.mark.parametrize("kind", ["operator", "kernel"])
def test_several_results_are_given_as_a_tuple(kind: str) -> None:
    operator = polyc.compile("def f(float(N) a) -> (b, c) { b(i) = a(i) * 2.0  c(i) = a(i) + 1.0 }")
    a = np.arange(6, dtype=np.float32)
    call = operator if kind == "operator" else operator.specialize(a)
    for _ in range(4):  # planned, found in Python, found by compiled code
        b, c = np.zeros((2, 6), np.float32)
        results = call(a, out=(b, c))
        assert results[0] is b and results[1] is c
        np.testing.assert_array_equal(b, a * 2)
        np.testing.assert_array_equal(c, a + 1)
    tables = call._plans._calls
    assert not tables or tables[2].call(a, b, c)[1] is c
    b, c = call(a, out=(None, c))
    np.testing.assert_array_equal(b, a * 2)
    for wrong in ((b,), (b, c, c), (b, b), (b, c[::-1][:5]), (b, c.astype(np.float64)), (b, [0] * 6), (b[:5], c[1:]), ()):
        with pytest.raises(PolycError):
            call(a, out=wrong)
    c.flags.writeable = False
    with pytest.raises(PolycError, match="read-only"):
        call(a, out=(b, c))
    shared = np.zeros(8, np.float32)
    with pytest.raises(PolycError, match="share"):
        call(a, out=(shared[:6], shared[2:]))


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "u8", "i32", "i64", "u64"])
def test_numbers_are_taken_by_compiled_code_as_their_conversion_makes_arrays_of_them(name):
    dtype = DTYPES[name]
    kernel = make_number_kernel(dtype)
    for value in (*NUMBERS, *GENERIC):
        found = kernel._plans.call(value)
        (expected,) = PlainArguments([Formal("a", dtype, (), None)], ()).inputs([value]) or (None,)
        if found is None:  # Python says why, or takes it: another type, a truth value
            is_left = expected is None or expected.dtype != dtype.numpy or type(value) is bool
            assert is_left or (type(value) is int and value >= 2**63), value
        else:
            np.testing.assert_array_equal(found, expected)
    assert kernel._plans.call(dtype.numpy.type(3)) == 3


def make_number_kernel(dtype):
    """A kernel that copies its only input, a scalar, and was called often enough for compiled code to know it."""
    kernel = polyc.compile(f"def f({tc_name(dtype)} a) -> (y) {{ y = a }}").specialize()
    for _ in range(3):
        kernel(np.ones((), dtype.numpy))
    return kernel


def tc_name(dtype):
    return f"{'u' * (dtype.kind == 'u')}{'float' if dtype.kind == 'f' else 'int'}{8 * dtype.itemsize}"


def test_numbers_for_open_types_are_float64_and_int64():
    scaled = polyc.op("def scaled(a, x):\n    y[i] = a * x[i]\n    return y")
    x = np.ones(3, np.float32)
    for value in (2.5, 3, np.float32(2.5), np.int8(3)):
        for _ in range(3):
            first = scaled(value, x)
        found = scaled._plans.call(value, x)
        assert found is not None and found.dtype == first.dtype
        np.testing.assert_array_equal(found, first)
    assert scaled._plans.call(2**63, x) is None


def test_numbers_are_read_at_each_call_and_results_keep_them():
    op = polyc.compile("def f(double a, int32 n, double(N) x) -> (y) { y(i) = a * x(i) + double(n) }")
    x, out = np.arange(5.0), np.zeros(5)
    for k in range(20):
        assert op(k + 0.5, k, x, out=out) is out
        np.testing.assert_array_equal(out, (k + 0.5) * x + k)
    assert op._plans.call_into(1.5, np.int32(2), x, out) is out
    assert op._plans.call_into(1.5, 2, 3.0, out) is None  # a number is no vector
    assert op._plans.call_into(1.5, 2, x, 3.0) is None
