"""Sessions: inputs and outputs by name, memory of the caller's, and what is refused."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc.onnx
from polyc.diagnostics import PolycError
from tests.onnx.nodes import make_node_model

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def residual():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    return model(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4]), ("a", FLOAT, ["n", 4])])


X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_run_gives_outputs_by_name_and_for_any_batch():
    session = polyc.onnx.load(residual())
    assert [(p.name, p.shape, p.type) for p in session.get_inputs()] == [("x", ("n", 4), "tensor(float)")]
    assert [p.name for p in session.get_outputs()] == ["y", "a"]
    for n in (3, 1, 0, 7):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        y, a = session.run(None, {"x": x})
        np.testing.assert_array_equal(a, np.maximum(x, 0))
        np.testing.assert_array_equal(y, np.maximum(x, 0) + x)
    (only,) = session.run(["a"], {"x": X})
    np.testing.assert_array_equal(only, np.maximum(X, 0))


def test_inputs_of_any_layout():
    session = polyc.onnx.load(residual())
    for x in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.byteswap().view(X.dtype.newbyteorder())):
        np.testing.assert_array_equal(session.run(["a"], {"x": x})[0], np.maximum(X, 0))


def test_results_are_written_to_given_memory():
    session = polyc.onnx.load(residual())
    y, a = np.empty_like(X), np.empty((4, 3), np.float32).T
    found = session.run(None, {"x": X}, out={"y": y, "a": a})
    assert found[0] is y and found[1] is a
    np.testing.assert_array_equal(y, np.maximum(X, 0) + X)
    np.testing.assert_array_equal(a, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("out", "code"),
    [
        ({"y": np.empty((3, 5), np.float32)}, "argument-onnx-out"),
        ({"y": np.empty((3, 4), np.float64)}, "argument-onnx-out"),
        ({"y": X}, "argument-onnx-out"),
        ({"y": [1.0]}, "argument-onnx-out"),
        ({"z": np.empty((3, 4), np.float32)}, "argument-onnx-output"),
        ({"y": np.broadcast_to(np.float32(0), (3, 4))}, "argument-onnx-out"),
    ],
)
def test_memory_that_does_not_fit_is_refused(out, code):
    session = polyc.onnx.load(residual())
    with pytest.raises(PolycError) as caught:
        session.run(None, {"x": X}, out=out)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("feed", "code"),
    [
        ({}, "argument-onnx-input"),
        ({"x": X, "z": X}, "argument-onnx-input"),
        ({"x": X.astype(np.float64)}, "argument-type-onnx-input"),
        ({"x": X[0]}, "argument-onnx-shape"),
        ({"x": X.T.copy()}, "argument-onnx-shape"),
        ([X], "argument-type-onnx-feed"),
        ({"x": np.full((3, 4), None)}, "argument-type-onnx-input"),
        ({"x": "text"}, "argument-type-array"),
        ({"x": [[1, 2], [3]]}, "argument-type-array"),
        ({"x": None}, "argument-type-array"),
        ({"x": [[1e300] * 4]}, "argument-type-dtype"),
        ({"x": np.ma.array(X, mask=X > 0)}, "argument-type-masked"),
    ],
)
def test_wrong_inputs_are_errors(feed, code):
    with pytest.raises(PolycError) as caught:
        polyc.onnx.load(residual()).run(None, feed)
    assert caught.value.code == code


def test_wrong_outputs_and_options_are_errors():
    session = polyc.onnx.load(residual())
    for names, code in (
        (["q"], "argument-onnx-output"),
        ("y", "argument-type-onnx-outputs"),
        (1, "argument-type-onnx-outputs"),
    ):
        with pytest.raises(PolycError) as caught:
            session.run(names, {"x": X})
        assert caught.value.code == code
    for out in ([X], [], X):
        with pytest.raises(PolycError) as caught:
            session.run(None, {"x": X}, out=out)
        assert caught.value.code == "argument-type-onnx-outputs"
    with pytest.raises(PolycError) as caught:
        session.run_with_iobinding(None)
    assert caught.value.code == "argument-type-onnx-feed"
    wrong = ({"threads": n} for n in (0, -1, 1.5, True))
    for options in (*wrong, {"dynamic": "maybe"}, {"dynamic": None}, {"options": 3}, {"progress": 3}):
        with pytest.raises(PolycError) as caught:
            polyc.onnx.load(residual(), **options)
        assert caught.value.code.startswith("argument-")


def test_a_session_says_that_it_cannot_be_pickled():
    with pytest.raises(PolycError) as caught:
        pickle.dumps(polyc.onnx.load(residual()))
    assert caught.value.code == "argument-pickle"


class OnlyDlpack:
    """An array as other libraries show theirs."""

    def __dlpack__(self, **arguments):
        return X.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return X.__dlpack_device__()


@pytest.mark.parametrize("x", [X.tolist(), list(X), X.data, OnlyDlpack()])
def test_inputs_that_other_libraries_make(x):
    np.testing.assert_array_equal(polyc.onnx.load(residual()).run(["a"], {"x": x})[0], np.maximum(X, 0))


def test_an_output_that_is_an_input_is_a_copy():
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, None)], [("y", FLOAT, None), ("x", FLOAT, None)]))
    x = X.copy()
    y, same = session.run(None, {"x": x})
    x[:] = 0
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(same, X)
    y[:] = 1
    np.testing.assert_array_equal(same, X)


def test_constants_among_the_outputs_are_not_handed_out():
    weight = helper.make_tensor("w", FLOAT, [2], [1.0, 2.0])
    session = polyc.onnx.load(
        model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2])], [("w", FLOAT, [2])], [weight])
    )
    feed = {"x": np.ones(2, np.float32)}
    session.run(None, feed)[0][:] = 7
    np.testing.assert_array_equal(session.run(None, feed)[0], [1, 2])


def test_inputs_with_defaults_may_be_given():
    weight = helper.make_tensor("w", FLOAT, [1], [3.0])
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, ["n"]), ("w", FLOAT, [1])], [("y", FLOAT, ["n"])], [weight]))
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 3 * x)
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": np.float32([5])})[0], 5 * x)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 3 * x)


def test_shapes_that_are_inputs():
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, None), ("s", INT, [2])], [("y", FLOAT, None)]))
    for shape in ((4, 3), (2, 6), (12, 1), (4, 3)):
        found = session.run(None, {"x": X, "s": np.asarray(shape)})[0]
        np.testing.assert_array_equal(found, np.maximum(X, 0).reshape(shape))


def test_ranges_of_old_exporters_are_no_computation():
    """Before `Range` there was NonZero of as many ones: it depends on a shape only."""
    nodes = [
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("z", INT, [1], [0])),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["ones"], value=helper.make_tensor("o", INT, [1], [1])),
        helper.make_node("NonZero", ["ones"], ["places"]),
        helper.make_node("Squeeze", ["places"], ["range"], axes=[0]),
        helper.make_node("Cast", ["range"], ["positions"], to=FLOAT),
        helper.make_node("Mul", ["x", "positions"], ["y"]),
    ]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, ["n"])], opset=9), strict=True)
    for n in (4, 3, 5, 6):
        x = np.linspace(1, 2, n, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * np.arange(n, dtype=np.float32))


def test_shapes_that_data_decides():
    """The number of nonzero elements is known in the middle of a run only."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["places"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
        helper.make_node("Cast", ["places"], ["p"], to=FLOAT),
        helper.make_node("Add", ["zeros", "p"], ["y"]),
    ]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, None)]))
    for x in ([0, 1, 2], [0, 0, 0], [1, 1, 1], [0, 3, 1]):
        x = np.asarray(x, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], [np.flatnonzero(x)])


def test_strict_lists_every_unsupported_node():
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Unknown", ["a"], ["y"], domain="their.own")]
    proto = model(nodes, [("x", FLOAT, ["n"])], [("y", INT, None)])
    with pytest.raises(PolycError) as caught:
        polyc.onnx.load(proto, strict=True)
    assert caught.value.code == "unsupported-onnx-strict" and len(caught.value.diagnostics) == 2
    # Nobody has the other one: onnx's reference implementation is no way out.
    assert ["function of the model" in (d.help or "") for d in caught.value.diagnostics] == [False, True]
    with pytest.raises(PolycError) as caught:
        polyc.onnx.load(proto).run(None, {"x": np.ones(3, np.float32)})
    assert caught.value.code == "unsupported-onnx-operator"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "reason", "other"),
    [
        (
            "com.microsoft.QLinearAveragePool",
            (np.ones((1, 4, 4, 3), np.uint8), np.float32(0.1), np.uint8(3), np.float32(0.1), np.uint8(3)),
            {"kernel_shape": [2, 2], "channels_last": 1},
            "channels that stand last",
            "nor does onnx's reference implementation have it",
        ),
        (
            "GridSample",
            (np.ones((1, 1, 4, 4), np.float32), np.ones((1, 2, 2, 2), np.float32)),
            {"mode": "quintic"},
            "mode is quintic",
            "nor can onnx compute it for float32[1, 1, 4, 4]",
        ),
    ],
)
def test_what_neither_polyc_nor_onnx_computes_is_told_with_the_reason_of_polyc(op, inputs, attributes, reason, other):
    domain, _, name = op.rpartition(".")
    feed = {f"x{k}": np.asarray(v) for k, v in enumerate(inputs)}
    proto = make_node_model(name, feed, domain=domain, **attributes)
    with pytest.raises(PolycError) as caught:
        polyc.onnx.load(proto).run(None, feed)
    assert f"is not compiled: {reason}; {other}" in caught.value.diagnostics[0].message


def loop_of_squares(count_is_input=True):
    """y[k] = (s + k)², s = y[k]: the count is an input."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["k"], ["f"], to=FLOAT),
            helper.make_node("Add", ["s", "f"], ["t"]),
            helper.make_node("Mul", ["t", "w"], ["u"]),
            helper.make_node("Identity", ["c"], ["c1"]),
            helper.make_node("Identity", ["u"], ["part"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [2]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("c1", BOOL, []), ("u", FLOAT, [2]), ("part", FLOAT, [2]))],
    )
    nodes = [helper.make_node("Loop", ["m", "", "s0"], ["last", "parts"], body=body)]
    inputs = [("m", INT, []), ("s0", FLOAT, [2])]
    weight = helper.make_tensor("w", FLOAT, [2], [0.5, 0.25])
    return model(nodes, inputs, [("last", FLOAT, [2]), ("parts", FLOAT, [None, 2])], [weight])


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_loop_whose_count_is_an_input(count):
    session = polyc.onnx.load(loop_of_squares())
    s, parts = np.float32([1, 2]), []
    for k in range(count):
        s = (s + np.float32(k)) * np.float32([0.5, 0.25])
        parts.append(s)
    last, found = session.run(None, {"m": np.asarray(count), "s0": np.float32([1, 2])})
    np.testing.assert_array_equal(last, s)
    np.testing.assert_array_equal(found, np.reshape(parts, (count, 2)))


def test_one_session_in_several_threads():
    """Each thread has inputs of its own, some of equal and some of different shapes; all results are right, every time."""
    session = polyc.onnx.load(residual())
    problems = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for k in range(25):
            x = rng.standard_normal((1 + (seed + k) % 3, 4)).astype(np.float32)
            y, a = session.run(None, {"x": x})
            if not (np.array_equal(a, np.maximum(x, 0)) and np.array_equal(y, a + x)):
                problems.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


GIANTS = {
    "ConstantOfShape": ([helper.make_node("ConstantOfShape", ["s"], ["y"])], [1 << 31, 1 << 20]),
    "Expand": ([helper.make_node("Expand", ["x", "s"], ["y"])], [1 << 31, 1 << 20]),
    "Tile": ([helper.make_node("Tile", ["x", "s"], ["y"])], [1 << 45]),
    "overflow": ([helper.make_node("ConstantOfShape", ["s"], ["y"])], [1 << 40, 1 << 40]),
    "negative": ([helper.make_node("ConstantOfShape", ["s"], ["y"])], [-5]),
}


@pytest.mark.parametrize("name", GIANTS)
@pytest.mark.parametrize("is_constant", [True, False])
def test_results_that_no_machine_holds_are_errors(name, is_constant):
    nodes, shape = GIANTS[name]
    inputs = [("x", FLOAT, [1]), *([] if is_constant else [("s", INT, [len(shape)])])]
    initializers = [helper.make_tensor("s", INT, [len(shape)], shape)] if is_constant else []
    session = polyc.onnx.load(model(nodes, inputs, [("y", FLOAT, None)], initializers))
    feed = {"x": np.ones(1, np.float32), **({} if is_constant else {"s": np.asarray(shape)})}
    with pytest.raises(PolycError):
        session.run(None, feed)


def test_a_giant_range_is_an_error():
    ends = [helper.make_tensor(n, INT, [], [v]) for n, v in (("a", 0), ("b", 1 << 45), ("d", 1))]
    session = polyc.onnx.load(model([helper.make_node("Range", ["a", "b", "d"], ["y"])], [], [("y", INT, None)], ends))
    with pytest.raises(PolycError) as caught:
        session.run(None, {})
    assert caught.value.code in ("argument-too-large", "unsupported-onnx-evaluation")


def test_equal_runs_give_equal_bits_at_any_number_of_threads():
    rng = np.random.default_rng(0)
    weight = helper.make_tensor("w", FLOAT, [64, 32], rng.standard_normal(64 * 32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    proto = model(nodes, [("x", FLOAT, ["n", 64])], [("y", FLOAT, None)], [weight])
    x = rng.standard_normal((300, 64)).astype(np.float32)
    results = [polyc.onnx.load(proto, threads=n).run(None, {"x": x})[0] for n in (1, 2, 2)]
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def test_types_that_an_operator_does_not_take_are_errors():
    nodes = [helper.make_node("Add", ["x", "k"], ["y"])]
    proto = model(nodes, [("x", FLOAT, [2]), ("k", INT, [2])], [("y", FLOAT, [2])])
    with pytest.raises(PolycError, match="must be of one type") as caught:
        polyc.onnx.load(proto).run(None, {"x": np.ones(2, np.float32), "k": np.ones(2, np.int64)})
    assert caught.value.code == "semantic-onnx-type"


def test_a_result_of_another_type_than_declared_is_an_error_in_every_run():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    proto = model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, ["n"]), ("z", INT, ["n"])])
    session = polyc.onnx.load(proto)
    for _ in range(4):
        with pytest.raises(
            PolycError, match=r"declares its output 'z' as tensor\(int64\), and what it computes is float32"
        ) as caught:
            session.run(None, {"x": X[0]})
        assert caught.value.code == "semantic-onnx-type"
        np.testing.assert_array_equal(session.run(["y"], {"x": X[0]})[0], np.maximum(X[0], 0))


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatters_of_16_bit_floats_reduce_without_rounding_in_between(op, reduction):
    x, updates = np.full(3, 2048, np.float16), np.array([1, 1, 0.5, 2], np.float16)
    positions = np.array([0, 0, 1, 0])
    half = TensorProto.FLOAT16
    place = positions if op == "ScatterElements" else positions[:, None]
    inputs = [("x", half, [3]), ("i", INT, place.shape), ("u", half, [4])]
    nodes = [helper.make_node(op, ["x", "i", "u"], ["y"], reduction=reduction)]
    session = polyc.onnx.load(model(nodes, inputs, [("y", half, [3])], opset=18), strict=True)
    (y,) = session.run(None, {"x": x, "i": place, "u": updates})
    wanted = x.astype(np.float32)
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    function.at(wanted, positions, updates.astype(np.float32))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, wanted.astype(np.float16))


def test_profile_names_kernels_and_their_nodes(tmp_path):
    session = polyc.onnx.load(residual())
    profile = session.profile({"x": X}, n_runs=3)
    assert len(profile.runs) == 3 and profile.entries and all(len(e.times) == 3 for e in profile.entries)
    assert "Relu" in str(profile) and "GFLOP/s" in str(profile)
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {e["name"] for e in trace["traceEvents"]} >= {"run 0", "run 2"}
    drawn = session.profile(n_runs=1)
    assert [e.nodes for e in drawn.entries] == [e.nodes for e in profile.entries]
    for n in (0, -1, 1.5, True):
        with pytest.raises(PolycError):
            session.profile({"x": X}, n_runs=n)


def test_a_profile_of_other_shapes_counts_theirs():
    node = helper.make_node("Add", ["x", "x"], ["y"])
    ports = [helper.make_tensor_value_info("x", 1, ["n", 3])], [helper.make_tensor_value_info("y", 1, ["n", 3])]
    model = helper.make_model(helper.make_graph([node], "g", *ports), opset_imports=[helper.make_opsetid("", 17)])
    session = polyc.onnx.load(model, dynamic=True)
    for n in (2, 3, 4, 5):
        (entry,) = session.profile({"x": np.ones((n, 3), np.float32)}, n_runs=1).entries
        assert (entry.operations, entry.n_bytes) == (3 * n, 24 * n)


def test_a_profile_counts_operations_and_bytes():
    """A product of 8x16 by 16x4: 8·4·16 multiplications and as many additions, and three matrices of float32."""
    weight = helper.make_tensor("w", FLOAT, [16, 4], np.ones(64))
    session = polyc.onnx.load(
        model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, [8, 16])], [("y", FLOAT, None)], [weight])
    )
    (entry,) = session.profile(n_runs=1).entries
    assert entry.operations == 2 * 8 * 4 * 16 and entry.n_bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_what_cannot_be_compiled_is_left_to_the_reference(monkeypatch):
    """A cluster whose compilation fails costs its nodes' speed, not the run; the remark has the reason."""
    from polyc import jobs, recall
    from polyc.diagnostics import Diagnostic, InternalError

    compile_program = recall.compile_program

    def fail(program, **options):
        if "relu" in program.name:
            raise InternalError(Diagnostic("internal-schedule", "it does not work"))
        return compile_program(program, **options)

    monkeypatch.setattr(recall, "compile_program", fail)
    monkeypatch.setattr(recall, "find", lambda request: None)
    monkeypatch.setattr(jobs, "_may_start", lambda: False)  # a worker would not see this
    session = polyc.onnx.load(residual())
    y, a = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0) + X)
    np.testing.assert_array_equal(a, np.maximum(X, 0))
    (remark,) = session.remarks
    assert "it does not work" in remark.message and "Relu" in remark.message
    with pytest.raises(InternalError):
        polyc.onnx.load(residual(), strict=True).run(None, {"x": X})


def test_indices_that_data_gives_through_a_view():
    """Tile makes the index a view of one row: the update's first index, of one value, leaves the subscripts."""
    reps = helper.make_tensor("reps", INT, [2], [1, 3])
    nodes = [
        helper.make_node("Tile", ["k", "reps"], ["i"]),
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0),
    ]
    inputs = [("k", INT, [1, 1]), ("x", FLOAT, [5, 3]), ("u", FLOAT, [1, 3])]
    session = polyc.onnx.load(model(nodes, inputs, [("y", FLOAT, None)], [reps], opset=13), strict=True)
    x, u = np.zeros((5, 3), np.float32), np.float32([[1, 2, 3]])
    found = session.run(None, {"k": np.asarray([[2]]), "x": x, "u": u})[0]
    x[2] = u
    np.testing.assert_array_equal(found, x)


def test_an_index_outside_names_the_node_and_the_tensor():
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], name="look")]
    session = polyc.onnx.load(model(nodes, [("table", FLOAT, [1, 3]), ("i", INT, [1])], [("y", FLOAT, None)]))
    with pytest.raises(PolycError, match=r"Gather look: subscript 7 of dimension 0 of table") as caught:
        session.run(None, {"table": np.ones((1, 3), np.float32), "i": np.asarray([7])})
    assert isinstance(caught.value, IndexError)


def test_an_index_into_a_tensor_without_elements_names_the_node():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Gather", ["r", "i"], ["y"], name="look")]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, ["n", 3]), ("i", INT, [1])], [("y", FLOAT, None)]))
    with pytest.raises(PolycError, match=r"Gather look: .*dimension 0") as caught:
        session.run(None, {"x": np.ones((0, 3), np.float32), "i": np.asarray([0])})
    assert isinstance(caught.value, IndexError)


def test_more_dimensions_than_arrays_have():
    shape = helper.make_tensor("s", INT, [100], [1] * 99 + [3])
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    session = polyc.onnx.load(model(nodes, [("x", FLOAT, [3])], [("y", FLOAT, None)], [shape]))
    with pytest.raises(PolycError) as caught:
        session.run(None, {"x": np.ones(3, np.float32)})
    assert caught.value.code == "semantic-onnx-shape"


def test_an_index_out_of_range_names_its_node_and_later_runs_are_right():
    """The second of three kernels fails: nothing after it runs, and the message is about it."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="first"),
        helper.make_node("Gather", ["p", "i"], ["g"], name="picks"),
        helper.make_node("MatMul", ["g", "w"], ["y"], name="last"),
    ]
    w = rng.standard_normal((8, 8)).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 8)),
        helper.make_tensor_value_info("i", TensorProto.INT64, (3,)),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 8))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(w, "w")])
    session = polyc.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x, i = rng.standard_normal((5, 8)).astype(np.float32), np.array([4, 0, -1])
    np.testing.assert_allclose(session.run(None, {"x": x, "i": i})[0], (x @ w)[i] @ w, rtol=1e-4)
    with pytest.raises(polyc.BoundsError, match="picks"):
        session.run(None, {"x": x, "i": np.array([4, 5, 0])})
    np.testing.assert_allclose(session.run(None, {"x": x, "i": i})[0], (x @ w)[i] @ w, rtol=1e-4)
    session.profile({"x": x, "i": i})
    np.testing.assert_allclose(session.run(None, {"x": x, "i": i})[0], (x @ w)[i] @ w, rtol=1e-4)


def odd_resizes(shape):
    """Two that no function covers by their attributes, the second behind the first, and a good node behind both."""
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")
    nodes = [
        helper.make_node("Resize", ["x", "", "s"], ["a"], name="first", mode="their_own"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("Resize", ["b", "", "s"], ["y"], name="second", mode="another"),
    ]
    return model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, None)], [scales])


@pytest.mark.parametrize("shape", [[1, 2, 4, 4], ["n", 2, "h", "w"]])
def test_strict_lists_at_load_what_attributes_refuse(shape):
    with pytest.raises(PolycError) as caught:
        polyc.onnx.load(odd_resizes(shape), strict=True)
    assert caught.value.code == "unsupported-onnx-strict"
    listed = [d.message for d in caught.value.diagnostics]
    assert len(listed) == 2 and "first" in listed[0] and "second" in listed[1]


def test_strict_lists_at_the_run_what_undeclared_shapes_hid():
    session = polyc.onnx.load(odd_resizes(None), strict=True)
    with pytest.raises(PolycError) as caught:
        session.run(None, {"x": np.zeros((1, 2, 4, 4), np.float32)})
    assert len(caught.value.diagnostics) == 2


def test_strict_does_not_refuse_at_load_what_only_small_extents_do():
    """For extents of 1 the window is larger than the padded input; nobody has said that they are 1."""
    nodes = [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3])]
    proto = model(nodes, [("x", FLOAT, ["n", 2, "h", "w"])], [("y", FLOAT, None)])
    (y,) = polyc.onnx.load(proto, strict=True).run(None, {"x": np.ones((1, 2, 5, 5), np.float32)})
    np.testing.assert_allclose(y, np.ones((1, 2, 3, 3)))


def test_a_first_run_of_the_extents_that_strict_tried_is_right():
    """What was lowered at load serves the run of these very shapes, and no other."""
    for shapes in ([(1, 4), (3, 4), (1, 4)], [(3, 4), (1, 4)]):
        session = polyc.onnx.load(residual(), strict=True)
        for shape in shapes:
            x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
            y, a = session.run(None, {"x": x})
            np.testing.assert_array_equal(a, np.maximum(x, 0))
            np.testing.assert_array_equal(y, np.maximum(x, 0) + x)


def test_memory_that_the_system_does_not_give_is_a_named_error(monkeypatch):
    session = polyc.onnx.load(residual())

    def fail(*_):
        raise MemoryError("no block")

    monkeypatch.setattr(session.runner, "run", fail)
    with pytest.raises(PolycError, match="no block") as caught:
        session.run(None, {"x": X})
    assert caught.value.code == "argument-too-large"


def test_zeros_of_both_signs_are_not_one_kernel():
    zeros = [helper.make_tensor(n, FLOAT, [], [v]) for n, v in (("p", 0.0), ("m", -0.0))]
    nodes = [helper.make_node("Mul", ["x", "p"], ["a"]), helper.make_node("Mul", ["z", "m"], ["b"])]
    ports = [(n, FLOAT, [4]) for n in ("x", "z")]
    session = polyc.onnx.load(model(nodes, ports, [("a", FLOAT, [4]), ("b", FLOAT, [4])], zeros))
    x = np.ones(4, np.float32)
    a, b = session.run(None, {"x": x, "z": x})
    assert not np.signbit(a).any() and np.signbit(b).all()


def test_what_the_reference_refuses_is_told_with_shapes_and_numpys_own_words():
    ports = [("x", FLOAT, [2, 3]), ("s", INT, [1])], [("y", FLOAT, None)]
    reshaped = model([helper.make_node("Reshape", ["x", "s"], ["y"])], *ports)
    with pytest.raises(PolycError, match=r"float32\[2, 3\], int64\[1\].*size 6 into shape \(7,\)") as caught:
        polyc.onnx.load(reshaped).run(None, {"x": np.ones((2, 3), np.float32), "s": np.array([7])})
    assert caught.value.code == "unsupported-onnx-evaluation"


def test_what_shape_inference_refuses_is_told_with_shapes_and_its_own_words():
    product = model([helper.make_node("MatMul", ["x", "x"], ["y"])], [("x", FLOAT, [2, 3])], [("y", FLOAT, None)])
    with pytest.raises(PolycError, match=r"float32\[2, 3\], float32\[2, 3\].*Incompatible dimensions") as caught:
        polyc.onnx.load(product).run(None, {"x": np.ones((2, 3), np.float32)})
    assert caught.value.code == "unsupported-onnx-evaluation"
