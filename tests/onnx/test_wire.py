"""Large tensors left in the model's file: the same model, whatever the file looks like."""

from __future__ import annotations

import mmap

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from polyc.diagnostics import PolycError
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.wire import SMALLEST, cut_tensors


def build(constants):
    nodes = [helper.make_node("Identity", [n], [f"{n}.out"]) for n in constants]
    outputs = [helper.make_tensor_value_info(f"{n}.out", TensorProto.FLOAT, None) for n in constants]
    tensors = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def owner(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.fixture
def constants():
    rng = np.random.default_rng(0)
    return {
        "large": rng.standard_normal((40, 100)).astype(np.float32),
        "small": np.arange(3, dtype=np.float32),
        "odd": rng.integers(-9, 9, (5001,)).astype(np.int8),  # what is behind it is not aligned
        "half": rng.standard_normal((70, 70)).astype(np.float16),
    }


def test_large_tensors_stay_in_the_file(constants, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(build(constants), path)
    graph = read_model(path)
    for name, array in constants.items():
        np.testing.assert_array_equal(graph.constants[name], array)
        assert graph.constants[name].dtype == array.dtype
        assert isinstance(owner(graph.constants[name]), mmap.mmap) == (array.nbytes >= SMALLEST)
    shortened = cut_tensors(memoryview(path.read_bytes()))
    assert len(shortened) < SMALLEST


def test_a_model_without_large_tensors_is_left_alone(tmp_path):
    assert cut_tensors(memoryview(build({"small": np.arange(3)}).SerializeToString())) is None


@pytest.mark.parametrize("change", ["short", "long", "type", "string"])
def test_lengths_are_checked(constants, tmp_path, change):
    model = build(constants)
    tensor = model.graph.initializer[0]
    match change:
        case "short":
            tensor.raw_data = tensor.raw_data[:-4]
        case "long":
            tensor.raw_data += b"1234"
        case "type":
            tensor.data_type = TensorProto.DOUBLE
        case "string":
            tensor.data_type = TensorProto.STRING
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PolycError) as caught:
        read_model(path)
    assert caught.value.diagnostics[0].code == "semantic-onnx-tensor"


@pytest.mark.parametrize("place, length", [("99999999", "16000"), ("x", "16000"), ("-1", "16000"), ("0", "99"), ("0", "")])
def test_a_file_that_makes_its_own_references_reads_nothing_else(constants, tmp_path, place, length):
    model = build(constants)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("polyc-place", place), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PolycError):
        read_model(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_are_a_model_as_protobuf_reads_it_or_none(data):
    # Bytes of a model with some changed: what is left of it means what all of it means, or is left to protobuf.
    content = bytearray(build({"a": np.arange(2000, dtype=np.float32), "b": np.zeros(3000, np.int64)}).SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, 200)) * (1 if data.draw(st.booleans()) else 97) % len(content)] = data.draw(
            st.integers(0, 255)
        )
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    shortened = cut_tensors(memoryview(bytes(content)))
    if shortened is None:
        return
    whole, short = onnx.ModelProto(), onnx.ModelProto()
    try:
        whole.ParseFromString(bytes(content))
    except Exception:
        with pytest.raises(Exception):  # noqa: B017
            short.ParseFromString(shortened)
        return
    short.ParseFromString(shortened)
    for t in short.graph.initializer:
        places = {e.key: e.value for e in t.external_data}
        if "polyc-place" in places:
            start = int(places["polyc-place"])
            t.raw_data = bytes(content[start : start + int(places["length"])])
            t.ClearField("external_data")
            t.ClearField("data_location")
    assert short == whole
