"""onnxruntime's habits: bound inputs and outputs, options, what a model says of itself."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import polyc.onnx as ort
from polyc.diagnostics import PolycError, PolycWarning

from .test_session import FLOAT, X, model, residual


def test_bound_memory_is_read_and_written_at_each_run():
    session = ort.InferenceSession(residual().SerializeToString())
    x, y = X.copy(), np.empty_like(X)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_output("y", y)
    binding.bind_output("a")
    for k in (1, -2):
        x[:] = X * k
        session.run_with_iobinding(binding)
        first, second = binding.copy_outputs_to_cpu()
        assert first is y
        np.testing.assert_array_equal(y, np.maximum(x, 0) + x)
        np.testing.assert_array_equal(second, np.maximum(x, 0))
    values = binding.get_outputs()
    assert values[0].numpy() is y and values[0].data_ptr() == y.ctypes.data
    assert (values[1].shape(), values[1].data_type(), values[1].device_name()) == ([3, 4], "tensor(float)", "cpu")


@pytest.mark.parametrize("element_type", [np.float32, FLOAT])
def test_memory_is_bound_by_its_address(element_type):
    session = ort.load(residual())
    x, y = X.copy(), np.full_like(X, 7)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, element_type, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, element_type, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, np.maximum(x, 0) + x)
    binding.clear_binding_outputs()
    session.run_with_iobinding(binding)
    assert [v.shape() for v in binding.get_outputs()] == [[3, 4], [3, 4]]  # all of them


@pytest.mark.parametrize(
    "arguments",
    [("cuda", 0, np.float32, (3, 4), 1 << 20), ("cpu", 0, None, (3, 4), 1 << 20), ("cpu", 0, np.float32, (3, -4), 1 << 20)],
    ids=["another device", "no element type", "a negative extent"],
)
def test_what_is_no_memory_of_the_processor_is_refused(arguments):
    binding = ort.load(residual()).io_binding()
    with pytest.raises(PolycError) as error:
        binding.bind_input("x", *arguments)
    assert error.value.code == "argument-onnx-device"


def test_an_input_that_is_not_bound_is_named():
    session = ort.load(residual())
    with pytest.raises(PolycError, match=r"'x'.*missing"):
        session.run_with_iobinding(session.io_binding())


def test_an_output_bound_to_another_shape_is_an_error():
    session = ort.load(residual())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_output("y", np.empty((4, 3), np.float32))
    with pytest.raises(PolycError) as error:
        session.run_with_iobinding(binding)
    assert error.value.code == "argument-onnx-out"


def test_options_and_providers_of_onnxruntime():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = ort.InferenceSession(residual(), options, providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})])
    assert session.get_session_options() is options and session.get_providers() == ort.get_available_providers()
    np.testing.assert_array_equal(session.run(["a"], {"x": X})[0], np.maximum(X, 0))
    with pytest.warns(PolycWarning, match="argument-onnx-provider"):
        ort.InferenceSession(residual(), providers=["CUDAExecutionProvider"])
    options.intra_op_num_threads = -3
    with pytest.raises(PolycError) as error:
        ort.InferenceSession(residual(), options)
    assert error.value.code == "argument-threads"


def test_values_of_onnxruntime_are_bound_and_run():
    session = ort.InferenceSession(residual())
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.data_type(), value.shape()) == ("tensor(float)", [3, 4])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("a")
    session.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), np.maximum(X, 0))
    (found,) = session.run_with_ort_values(["a"], {"x": value})
    np.testing.assert_array_equal(found.numpy(), np.maximum(X, 0))
    with pytest.raises(PolycError) as error:
        ort.OrtValue.ortvalue_from_numpy(X, "cuda")
    assert error.value.code == "argument-onnx-device"


def test_a_model_says_who_made_it():
    proto = residual()
    proto.producer_name, proto.model_version, proto.domain = "someone", 7, "ai.test"
    helper.set_model_props(proto, {"names": "{0: 'cat'}"})
    meta = ort.load(proto).get_modelmeta()
    assert (meta.producer_name, meta.version, meta.domain, meta.graph_name) == ("someone", 7, "ai.test", "g")
    assert meta.custom_metadata_map == {"names": "{0: 'cat'}"}


def test_inputs_with_defaults_are_listed_apart():
    add = [helper.make_node("Add", ["x", "b"], ["y"])]
    bias = helper.make_tensor("b", FLOAT, [4], [1.0] * 4)
    session = ort.load(model(add, [("x", FLOAT, ["n", 4]), ("b", FLOAT, [4])], [("y", FLOAT, ["n", 4])], [bias]))
    assert [p.name for p in session.get_inputs()] == ["x"]
    assert [p.name for p in session.get_overridable_initializers()] == ["b"]
