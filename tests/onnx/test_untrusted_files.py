"""Model files that nobody should trust: each fault is a named error, and nothing outside of the model's folder is read."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.diagnostics import PolycError
from polyc.frontends.onnx.checks import MOST_NESTING, check_model
from polyc.frontends.onnx.files import load_proto
from polyc.frontends.onnx.node_order import sort_nodes
from polyc.frontends.onnx.tensors import read_tensor

FLOAT = TensorProto.FLOAT


def make_model(nodes, *, initializers=(), outputs=("y",), inputs=("x",), opset=17, functions=()):
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, FLOAT, ["n"]) for n in inputs],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid("own", 1) for _ in functions[:1])]
    return helper.make_model(graph, opset_imports=imports, functions=functions)


def relu(x="x", y="y"):
    return helper.make_node("Relu", [x], [y])


def code_of(call, *arguments):
    with pytest.raises(PolycError) as caught:
        call(*arguments)
    assert caught.value.diagnostics[0].message and caught.value.diagnostics[0].help
    return caught.value.code


def test_a_proper_model_passes():
    check_model(make_model([relu()]))


# --- The file ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\x08", b"not a model at all", b"PK\x03\x04zip", bytes(range(256))])
def test_bytes_that_are_no_model(content):
    def load():
        check_model(load_proto(content)[0])

    assert code_of(load) == "semantic-onnx-model"


def test_an_empty_file_is_no_model():
    def load():
        check_model(load_proto(b"")[0])

    assert code_of(load) == "semantic-onnx-model"


def test_every_truncation_is_an_error_or_a_model():
    content = make_model([relu()]).SerializeToString()
    for n in range(len(content)):
        try:
            check_model(load_proto(content[:n])[0])
        except PolycError as error:
            assert error.code.startswith(("semantic-onnx", "unsupported-onnx"))


def test_paths_that_are_no_file(tmp_path):
    assert code_of(load_proto, tmp_path / "missing.onnx") == "argument-onnx-file"
    assert code_of(load_proto, tmp_path) == "argument-onnx-file"
    os.mkfifo(tmp_path / "pipe.onnx")  # reading it would wait for ever
    assert code_of(load_proto, tmp_path / "pipe.onnx") == "argument-onnx-file"
    assert code_of(load_proto, "a\0b") == "argument-onnx-file"
    assert code_of(load_proto, 3) == "argument-type-onnx-model"


def test_a_file_too_large_for_a_protobuf_is_not_read(tmp_path):
    with open(tmp_path / "large.onnx", "wb") as file:
        file.truncate(1 << 33)
    assert code_of(load_proto, tmp_path / "large.onnx") == "argument-onnx-file"


# --- External data -----------------------------------------------------------------------------------------------------------


def external(location, dims=(4,), **entries):
    tensor = TensorProto(name="w", data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    onnx.save(make_model([relu()]), inside / "m.onnx")
    np.arange(8, dtype=np.float32).tofile(inside / "w.bin")
    np.arange(8, dtype=np.float32).tofile(tmp_path / "secret.bin")
    return load_proto(inside / "m.onnx")[1]


def test_external_data_is_read(folder):
    np.testing.assert_array_equal(read_tensor(external("w.bin", offset=8, length=16), folder), [2, 3, 4, 5])
    np.testing.assert_array_equal(read_tensor(external("w.bin", dims=(2, 4)), folder), np.arange(8).reshape(2, 4))
    assert read_tensor(external("w.bin", dims=(0, 4)), folder).shape == (0, 4)


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "C:\\secret.bin", "..\\secret.bin", "", "no.bin", "a\0b"]
)
def test_external_data_elsewhere_is_refused(folder, location):
    assert code_of(read_tensor, external(location), folder) == "argument-onnx-external"


def test_links_out_of_the_folder_are_refused(folder):
    (folder.path / "link.bin").symlink_to(folder.path.parent / "secret.bin")
    (folder.path / "out").symlink_to(folder.path.parent)
    (folder.path / "own.bin").symlink_to("w.bin")
    (folder.path / "round.bin").symlink_to("round.bin")
    assert code_of(read_tensor, external("link.bin"), folder) == "argument-onnx-external"
    assert code_of(read_tensor, external("out/secret.bin"), folder) == "argument-onnx-external"
    assert code_of(read_tensor, external("round.bin"), folder) == "argument-onnx-external"
    assert read_tensor(external("own.bin"), folder).shape == (4,)


def test_a_model_that_is_a_link_finds_data_beside_its_target(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "shown").mkdir()
    onnx.save(make_model([relu()]), tmp_path / "blobs/1234")
    np.ones(4, np.float32).tofile(tmp_path / "blobs/5678")
    (tmp_path / "shown/m.onnx").symlink_to("../blobs/1234")
    (tmp_path / "shown/m.onnx_data").symlink_to("../blobs/5678")
    found = load_proto(tmp_path / "shown/m.onnx")[1]
    np.testing.assert_array_equal(read_tensor(external("m.onnx_data"), found), np.ones(4))


def test_what_is_no_ordinary_file_is_not_read(folder):
    os.mkfifo(folder.path / "pipe.bin")
    (folder.path / "folder.bin").mkdir()
    for name in ("pipe.bin", "folder.bin"):
        assert code_of(read_tensor, external(name), folder) == "argument-onnx-external"


@pytest.mark.parametrize(
    "entries", [{"offset": 24}, {"offset": -4}, {"length": 1 << 40}, {"offset": "x"}, {"offset": 1 << 62}, {"length": 8}]
)
def test_data_beyond_the_file_is_refused(folder, entries):
    assert code_of(read_tensor, external("w.bin", **entries), folder) == "argument-onnx-external"


def test_large_claims_take_no_memory(folder):
    assert code_of(read_tensor, external("w.bin", dims=(1 << 30, 1 << 20)), folder) == "argument-onnx-external"
    assert code_of(read_tensor, external("w.bin", dims=(1 << 40, 1 << 40)), folder) == "semantic-onnx-shape"


def test_external_data_of_a_model_without_a_path():
    assert code_of(read_tensor, external("w.bin")) == "argument-onnx-external"


# --- Tensors -----------------------------------------------------------------------------------------------------------------


def broken_tensor(**fields):
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    for name, value in fields.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (broken_tensor(dims=[1 << 40]), "semantic-onnx-tensor"),
        (broken_tensor(dims=[-4]), "semantic-onnx-shape"),
        (broken_tensor(dims=[1 << 33, 1 << 33]), "semantic-onnx-shape"),
        (broken_tensor(raw_data=b"abc"), "semantic-onnx-tensor"),
        (broken_tensor(data_type=0), "semantic-onnx-tensor"),
        (broken_tensor(data_type=99), "semantic-onnx-tensor"),
        (broken_tensor(data_type=TensorProto.STRING), "semantic-onnx-tensor"),
        (TensorProto(name="w", data_type=FLOAT, dims=[2], float_data=[1.0]), "semantic-onnx-tensor"),
        (TensorProto(name="w", data_type=FLOAT, dims=[1], int64_data=[1]), "semantic-onnx-tensor"),
        (TensorProto(name="w", data_type=FLOAT, dims=[1]), "semantic-onnx-tensor"),
    ],
)
def test_tensors_that_contradict_themselves(tensor, code):
    assert code_of(read_tensor, tensor) == code
    assert code_of(check_model, make_model([relu()], initializers=[tensor])) == code
    attribute = helper.make_node("Constant", [], ["y"])
    attribute.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    assert code_of(check_model, make_model([attribute])) == code


def test_tensors_of_every_type_are_read():
    for number in TensorProto.DataType.values():
        if number in (TensorProto.UNDEFINED, TensorProto.STRING):
            continue
        dtype = helper.tensor_dtype_to_np_dtype(number)
        array = np.array([0, 1, 1], dtype)
        for tensor in (numpy_helper.from_array(array, "w"), helper.make_tensor("w", number, [3], array)):
            found = read_tensor(tensor)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found.astype(np.complex128), array.astype(np.complex128))


# --- The graph ---------------------------------------------------------------------------------------------------------------


def nest(levels):
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("x", FLOAT, None)])
    for k in range(levels):
        node = helper.make_node("If", ["c"], [f"o{k}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info(f"o{k}", FLOAT, None)])
    return graph.node[0]


BAD_GRAPHS = {
    "circle": ([helper.make_node("Add", ["x", "b"], ["a"]), relu("a", "b"), relu("b", "y")], "semantic-onnx-cycle"),
    "own value": ([helper.make_node("Add", ["x", "y"], ["y"])], "semantic-onnx-cycle"),
    "unknown name": ([relu("z")], "semantic-onnx-name"),
    "computed twice": ([relu(), relu()], "semantic-onnx-name"),
    "writes an input": ([relu("x", "x"), relu()], "semantic-onnx-name"),
    "no result": ([relu("x", "z")], "semantic-onnx-name"),
    "too many inputs": ([helper.make_node("Relu", ["x", "x"], ["y"])], "semantic-onnx-node"),
    "too few inputs": ([helper.make_node("Add", ["x"], ["y"])], "semantic-onnx-node"),
    "missing input": ([helper.make_node("Add", ["", "x"], ["y"])], "semantic-onnx-node"),
    "too many outputs": ([helper.make_node("Relu", ["x"], ["y", "z"])], "semantic-onnx-node"),
    "no operator": ([helper.make_node("", ["x"], ["y"])], "semantic-onnx-node"),
    "attribute of a wrong type": ([helper.make_node("Softmax", ["x"], ["y"], axis=1.5)], "semantic-onnx-attribute"),
    "attribute missing": ([helper.make_node("Cast", ["x"], ["y"])], "semantic-onnx-attribute"),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_graphs_that_are_none(name):
    nodes, code = BAD_GRAPHS[name]
    assert code_of(check_model, make_model(nodes)) == code


def test_attributes_without_a_type_or_given_twice():
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    node.attribute.append(node.attribute[0])
    assert code_of(check_model, make_model([node])) == "semantic-onnx-attribute"
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    node.attribute[0].type = onnx.AttributeProto.UNDEFINED
    assert code_of(check_model, make_model([node])) == "semantic-onnx-attribute"


@pytest.mark.parametrize("equation", ["ij-", "i1->i", "i..j", "ij->ji->", "é"])
def test_equations_on_which_onnx_hangs_are_refused(equation):
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    assert code_of(check_model, make_model([node])) == "semantic-onnx-attribute"


def test_all_problems_are_reported_together():
    with pytest.raises(PolycError) as caught:
        check_model(make_model([relu("a", "b"), helper.make_node("Add", ["x"], ["c"]), relu("z", "y")]))
    assert [d.code for d in caught.value.diagnostics] == ["semantic-onnx-name", "semantic-onnx-node", "semantic-onnx-name"]
    assert "Relu" in str(caught.value) and "^" in str(caught.value)


def test_a_near_name_is_suggested():
    model = make_model([relu("x", "hidden"), relu("hiden", "y")])
    with pytest.raises(PolycError, match="did you mean hidden"):
        check_model(model)


def test_nodes_in_any_order_are_sorted():
    nodes = [relu("c", "y"), relu("b", "c"), relu("x", "a"), relu("a", "b")]
    check_model(make_model(nodes))
    found = sort_nodes(nodes)
    assert found is not None
    assert [n.output[0] for n in found] == ["a", "b", "c", "y"]


def test_subgraphs_count_as_readers_in_the_order():
    then = helper.make_graph([relu("late", "t")], "then", [], [helper.make_tensor_value_info("t", FLOAT, None)])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=then)
    nodes = [branch, relu("x", "late")]
    assert [n.op_type for n in sort_nodes(nodes) or ()] == ["Relu", "If"]
    loop = [branch, relu("y", "late")]
    assert sort_nodes(loop) is None


def test_names_that_are_no_text():
    content = make_model([relu("x", "name_one"), relu("name_one", "y")]).SerializeToString()
    broken = content.replace(b"name_one", b"name_\xff\xfe\xfd")
    assert code_of(check_model, load_proto(broken)[0]) == "semantic-onnx-model"


def test_deep_nesting_is_refused():
    check_model(make_model([helper.make_node("Cast", ["x"], ["c"], to=TensorProto.BOOL), nest(8), relu("o7")]))
    model = make_model([relu()])
    graph = model.graph
    for _ in range(MOST_NESTING + 4):
        graph = graph.node.add(op_type="If", input=["x"], output=["q"]).attribute.add(name="then_branch", type=5).g
    assert code_of(check_model, model) == "semantic-onnx-size"


def function(name, nodes):
    return helper.make_function("own", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])


def call(name, x="x", y="y"):
    return helper.make_node(name, [x], [y], domain="own")


def test_functions_that_call_themselves_are_refused():
    functions = [function("F", [call("G")]), function("G", [call("F")])]
    assert code_of(check_model, make_model([call("F")], functions=functions)) == "semantic-onnx-cycle"


def test_functions_that_grow_without_bound_are_refused():
    functions = [function("F0", [relu()])]
    for k in range(1, 60):
        functions.append(function(f"F{k}", [call(f"F{k - 1}", "x", "t"), call(f"F{k - 1}", "t", "y")]))
    assert code_of(check_model, make_model([call("F59")], functions=functions)) == "semantic-onnx-size"
    check_model(make_model([call("F8")], functions=functions[:9]))


def test_operator_sets():
    assert code_of(check_model, make_model([relu()], opset=999)) == "unsupported-onnx-opset"
    assert code_of(check_model, make_model([relu()], opset=-3)) == "semantic-onnx-model"
    model = make_model([relu()])
    del model.opset_import[:]
    assert code_of(check_model, model) == "semantic-onnx-model"
    model.opset_import.extend([helper.make_opsetid("", 12), helper.make_opsetid("ai.onnx", 13)])
    assert code_of(check_model, model) == "semantic-onnx-model"


def test_inputs_without_a_type_or_with_a_shape_that_overflows():
    model = make_model([relu()])
    model.graph.input[0].ClearField("type")
    assert code_of(check_model, model) == "semantic-onnx-type"
    model = make_model([relu()])
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, [1 << 40, 1 << 40, "n"]))
    assert code_of(check_model, model) == "semantic-onnx-shape"


def test_hostile_names_stay_on_one_line():
    with pytest.raises(PolycError) as caught:
        check_model(make_model([relu("a\n\x1b[2J" + "b" * 1000)]))
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 2000
