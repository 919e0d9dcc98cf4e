"""What must hold of a model before anything works with it.  A file can say anything; what it says wrong is a named error.

`check_model` goes over the protobuf once, in time and memory linear in its size, and reports all problems together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnx.defs
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from polyc.diagnostics import Diagnostic, SemanticError, Source, Span, UnsupportedError, suggest_name
from polyc.frontends.onnx.node_order import find_circle, sort_by_names, sort_nodes, subgraphs
from polyc.frontends.onnx.schemas import EXPORT, find_contradictions, find_schema, show
from polyc.frontends.onnx.tensors import describe_tensor_problem, element_count

MOST_NESTING = 16
"""Levels of subgraphs inside subgraphs."""
MOST_NODES = 250_000
"""Nodes of a graph once all functions of the model stand in place of their calls."""
MOST_REPORTED = 20
"""Problems that one error lists."""

_PRINTED = 1 << 14
"""Bytes of a node that is printed whole."""
_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.TYPE_PROTOS: "type_protos",
}

FunctionKey = tuple[str, str, str]


def check_model(model: ModelProto) -> None:
    """Raise SemanticError (``semantic-onnx-*``) or UnsupportedError (``unsupported-onnx-opset``) for a model that is none."""
    if not model.HasField("graph"):
        message = "the file holds no ONNX graph"
        help = "give a model in ONNX's binary format; export it again, or check the download"
        raise SemanticError(Diagnostic("semantic-onnx-model", message, None, help))
    _check_nesting(model)
    if any(isinstance(name, bytes) for name in _all_names(model)):  # what protobuf gives for a text that is not UTF-8
        message = "the model has names that are no text (UTF-8)"
        raise SemanticError(Diagnostic("semantic-onnx-model", message, None, EXPORT))
    opsets = read_opsets(model)
    checker = _Checker(opsets)
    functions = {function_key(f): f for f in model.functions}
    if len(functions) != len(model.functions):
        checker.report("semantic-onnx-name", "the model defines a function twice", None, EXPORT)
    for f in model.functions:
        own = opsets | {_domain(o.domain): o.version for o in f.opset_import}
        _Checker(own, checker.problems).check_function(f)
    checker.check_graph(model.graph)
    if not checker.problems:
        checker.problems += _check_calls(model, functions)
    if checker.problems:
        raise SemanticError(*checker.problems[:MOST_REPORTED])


def read_opsets(model: ModelProto) -> dict[str, int]:
    """Versions of operator sets by domain, the default one as the empty name."""
    opsets: dict[str, int] = {}
    for o in model.opset_import:
        domain = _domain(o.domain)
        if opsets.setdefault(domain, o.version) != o.version:
            message = f"the model imports versions {opsets[domain]} and {o.version} of the operator set {domain or 'ai.onnx'}"
            raise SemanticError(Diagnostic("semantic-onnx-model", message, None, EXPORT))
        if o.version < 1:
            message = f"the model imports version {o.version} of the operator set {domain or 'ai.onnx'}"
            raise SemanticError(Diagnostic("semantic-onnx-model", message, None, EXPORT))
    if not opsets:
        message = "the model says of no operator set which version it uses"
        raise SemanticError(Diagnostic("semantic-onnx-model", message, None, EXPORT))
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 1) > newest:
        message = f"the model uses operator set {opsets['']}, the installed onnx {onnx.__version__} knows those up to {newest}"
        help = "install a newer onnx, or export the model for an older operator set"
        raise UnsupportedError(Diagnostic("unsupported-onnx-opset", message, None, help))
    return opsets


def function_key(f: onnx.FunctionProto) -> FunctionKey:
    """What calls of a function name."""
    return (_domain(f.domain), f.name, getattr(f, "overload", ""))


def node_text(node: NodeProto) -> Span:
    """The node in ONNX's textual form, as the excerpt of a diagnostic; one line, without large attributes."""
    import onnx.printer

    text = ""
    if node.ByteSize() <= _PRINTED and not any(a.HasField("g") or a.graphs for a in node.attribute):
        try:
            text = " ".join(onnx.printer.to_text(node).split())
        except Exception:  # it is shown because something is wrong with it
            text = ""
    if not text:
        inputs, outputs = (", ".join(show(n) for n in names[:8]) for names in (node.input, node.output))
        text = f"{outputs} = {show(node.op_type)} <…> ({inputs})"
    name = node.name or next((o for o in node.output if o), node.op_type)
    return Span(Source(text, f"<node {show(name)}>"), 0, len(text))


class _Checker:
    """Goes over one graph and those inside it, and collects `problems`."""

    def __init__(self, opsets: Mapping[str, int], problems: list[Diagnostic] | None = None) -> None:
        self.opsets = opsets
        self.problems = [] if problems is None else problems

    def report(self, code: str, message: str, node: NodeProto | None, help: str) -> None:
        if len(self.problems) < MOST_REPORTED:
            self.problems.append(Diagnostic(code, message, None if node is None else node_text(node), help))

    def check_graph(self, graph: GraphProto, outer: tuple[set[str], ...] = ()) -> None:
        """Ports, tensors and nodes of `graph`; `outer` are the names of the graphs around it."""
        inputs = [p.name for p in graph.input]
        known = set(inputs)
        for name, count in Counter(inputs).items():
            if count > 1 or not name:
                what = f"two inputs of the graph are named {show(name)}" if name else "an input of the graph has no name"
                self.report("semantic-onnx-name", what, None, EXPORT)
        for p in (*graph.input, *graph.output):
            self.check_port(p, is_typed=not outer and p.name in known)
        tensors = [*graph.initializer]
        for sparse in graph.sparse_initializer:
            message = f"the initializer {show(sparse.values.name)} is a sparse tensor"
            self.report("semantic-onnx-tensor", message, None, "export the model with dense tensors")
            known.add(sparse.values.name)
        for name, count in Counter(t.name for t in tensors).items():
            if count > 1 or not name:
                what = f"two initializers are named {show(name)}" if name else "an initializer has no name"
                self.report("semantic-onnx-name", what, None, EXPORT)
        for t in tensors:
            self.check_tensor(t, None)
        known.update(t.name for t in tensors)
        self.check_nodes(graph.node, known, outer)
        results = Counter(p.name for p in graph.output)
        for name, count in results.items():
            if count > 1 and not outer:  # results of a session have names, those of a body places
                self.report("semantic-onnx-name", f"the graph returns {show(name)} twice", None, EXPORT)
            if name not in known and not any(name in names for names in outer):
                self.report("semantic-onnx-name", f"the graph returns {show(name)}, which nothing computes", None, EXPORT)

    def check_function(self, f: onnx.FunctionProto) -> None:
        """The body of a function of the model."""
        known = set(f.input)
        if len(known) != len(f.input):
            self.report("semantic-onnx-name", f"two inputs of the function {show(f.name)} have one name", None, EXPORT)
        self.check_nodes(f.node, known, (), in_function=True)
        for name in f.output:
            if name not in known:
                message = f"the function {show(f.name)} returns {show(name)}, which nothing computes"
                self.report("semantic-onnx-name", message, None, EXPORT)

    def check_port(self, port: onnx.ValueInfoProto, is_typed: bool) -> None:
        kind = port.type.WhichOneof("value")
        if kind is None:
            if is_typed:
                self.report("semantic-onnx-type", f"the input {show(port.name)} has no type", None, EXPORT)
            return
        if kind != "tensor_type":
            return
        tensor = port.type.tensor_type
        if tensor.elem_type not in onnx.TensorProto.DataType.values() or (is_typed and not tensor.elem_type):
            message = f"{show(port.name)} has the element type {tensor.elem_type}, which is none of ONNX's"
            self.report("semantic-onnx-type", message, None, EXPORT)
        try:
            element_count([d.dim_value for d in tensor.shape.dim if d.dim_value > 0], show(port.name))
        except SemanticError as error:
            self.problems += error.diagnostics

    def check_tensor(self, tensor: onnx.TensorProto, node: NodeProto | None) -> None:
        problem = describe_tensor_problem(tensor)
        if problem is not None:
            self.report(problem.code, problem.message, node, problem.help or EXPORT)

    def check_nodes(
        self, nodes: Sequence[NodeProto], known: set[str], outer: tuple[set[str], ...], in_function: bool = False
    ) -> None:
        """Nodes of a graph or function; adds what they compute to `known`."""
        if len(nodes) > MOST_NODES:
            message = f"the graph has {len(nodes)} nodes, more than {MOST_NODES}"
            self.report("semantic-onnx-size", message, None, "split the model")
            return
        for node in nodes:
            for name in node.output:
                if name in known:
                    message = f"{show(name)} is computed by two nodes, or is an input as well"
                    self.report("semantic-onnx-name", message, node, EXPORT)
                elif name:
                    known.add(name)
        scopes = (*outer, known)
        for node in nodes:
            for name in dict.fromkeys(node.input):
                if name and not any(name in names for names in scopes):
                    near = suggest_name(name, sorted(known)[:2000])
                    message = f"{show(node.op_type)} reads {show(name)}, which nothing computes"
                    self.report("semantic-onnx-name", message, node, near or EXPORT)
            self.check_node(node, in_function)
            for graph in subgraphs(node):
                self.check_graph(graph, scopes)
        if not self.problems and sort_nodes(nodes) is None:
            circle = " → ".join(show(n) for n in find_circle(nodes))
            self.report("semantic-onnx-cycle", f"nodes depend on each other in a circle: {circle}", None, EXPORT)

    def check_node(self, node: NodeProto, in_function: bool) -> None:
        """Attributes, and the numbers of inputs and outputs where the operator is one of ONNX's."""
        if not node.op_type:
            self.report("semantic-onnx-node", "a node names no operator", node, EXPORT)
            return
        names: set[str] = set()
        for a in node.attribute:
            if a.name in names or not a.name:
                what = f"has the attribute {show(a.name)} twice" if a.name else "has an attribute without a name"
                self.report("semantic-onnx-attribute", f"{show(node.op_type)} {what}", node, EXPORT)
            names.add(a.name)
            if a.ref_attr_name:
                if not in_function:
                    message = f"{show(node.op_type)} takes {show(a.name)} from a function's attribute, but stands in none"
                    self.report("semantic-onnx-attribute", message, node, EXPORT)
                continue
            filled = [f for kind, f in _FIELDS.items() if kind != a.type and (getattr(a, f) if _is_list(f) else a.HasField(f))]
            if a.type not in _FIELDS or filled:
                message = f"the attribute {show(a.name)} of {show(node.op_type)} has no type, or not that of its value"
                self.report("semantic-onnx-attribute", message, node, EXPORT)
                continue
            for tensor in (*((a.t,) if a.type == AttributeProto.TENSOR else ()), *a.tensors):
                self.check_tensor(tensor, node)
        domain = _domain(node.domain)
        schema = find_schema(node.op_type, self.opsets.get(domain, 0), domain)
        if schema is not None:
            for code, message, help in find_contradictions(node, schema):
                self.report(code, message, node, help)
        elif not domain and "" not in self.opsets:
            self.report("semantic-onnx-model", "the model imports no version of the operator set ai.onnx", node, EXPORT)


def _check_nesting(model: ModelProto) -> None:
    """Refuse graphs inside graphs, and types inside types, beyond `MOST_NESTING` levels; everything later may recur."""
    level: list[Sequence[NodeProto]] = [model.graph.node, *(f.node for f in model.functions)]
    types = [p.type for p in (*model.graph.input, *model.graph.output)]
    for _ in range(MOST_NESTING + 1):
        graphs = [g for nodes in level for node in nodes for g in subgraphs(node)]
        types += [p.type for g in graphs for p in (*g.input, *g.output)]
        level = [g.node for g in graphs]
    for _ in range(MOST_NESTING):
        types = [inner for t in types if (inner := _element_type(t)) is not None]
    if level or types:
        message = f"{'graphs' if level else 'types'} are nested in more than {MOST_NESTING} levels"
        raise SemanticError(Diagnostic("semantic-onnx-size", message, None, "write the model with fewer levels"))


def _element_type(proto: onnx.TypeProto) -> onnx.TypeProto | None:
    match proto.WhichOneof("value"):
        case "sequence_type":
            return proto.sequence_type.elem_type
        case "optional_type":
            return proto.optional_type.elem_type
        case "map_type":
            return proto.map_type.value_type
    return None


def _all_names(model: ModelProto) -> Iterator[str]:
    """Every text of a model that polyc works with."""
    for o in (*model.opset_import, *(o for f in model.functions for o in f.opset_import)):
        yield o.domain
    for f in model.functions:
        yield from (f.name, f.domain, getattr(f, "overload", ""), *f.input, *f.output, *f.attribute)
        yield from (a.name for a in f.attribute_proto)
        yield from _node_names(f.node)
    yield from _graph_names(model.graph)


def _graph_names(graph: GraphProto) -> Iterator[str]:
    yield graph.name
    for p in (*graph.input, *graph.output):
        yield p.name
        yield from (d.dim_param for d in p.type.tensor_type.shape.dim)
    for t in graph.initializer:
        yield from _tensor_names(t)
    yield from _node_names(graph.node)


def _tensor_names(tensor: onnx.TensorProto) -> Iterator[str]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


def _node_names(nodes: Iterable[NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output, getattr(node, "overload", ""))
        for a in node.attribute:
            yield from (a.name, a.ref_attr_name)
            for tensor in (*((a.t,) if a.HasField("t") else ()), *a.tensors):
                yield from _tensor_names(tensor)
        for graph in subgraphs(node):
            yield from _graph_names(graph)


def _is_list(field: str) -> bool:
    return field.endswith("s") and field != "s"


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


# --- Functions ---------------------------------------------------------------------------------------------------------------


def _check_calls(model: ModelProto, functions: Mapping[FunctionKey, onnx.FunctionProto]) -> list[Diagnostic]:
    """Functions that call themselves, and those whose calls grow beyond all bounds."""
    if not functions:
        return []
    calls = {key: _calls(f.node, functions) for key, f in functions.items()}
    keys = list(functions)
    number = {key: str(k) for k, key in enumerate(keys)}
    order = sort_by_names([[number[c] for c in calls[key][1]] for key in keys], [[number[key]] for key in keys])
    if order is None:
        message, help = "a function of the model calls itself", "functions are expanded where they are called: remove the call"
        return [Diagnostic("semantic-onnx-cycle", message, None, help)]
    counts: dict[FunctionKey, int] = {}
    for k in order:
        own, called = calls[keys[k]]
        counts[keys[k]] = own + sum(counts[c] * times for c, times in called.items())
    own, called = _calls(model.graph.node, functions)
    total = own + sum(counts[c] * times for c, times in called.items())
    if total <= MOST_NODES:
        return []
    shown = total if total < 10**12 else "over 10^12"
    message = f"the model has {shown} nodes where its functions are expanded, {MOST_NODES} are the most"
    return [Diagnostic("semantic-onnx-size", message, None, "split the model")]


def _calls(nodes: Iterable[NodeProto], functions: Mapping[FunctionKey, onnx.FunctionProto]) -> tuple[int, Counter[FunctionKey]]:
    """Nodes, those of subgraphs included, and calls of functions among them."""
    count, called = 0, Counter[FunctionKey]()
    for node in nodes:
        count += 1
        key = (_domain(node.domain), node.op_type, getattr(node, "overload", ""))
        if key in functions:
            called[key] += 1
        for graph in subgraphs(node):
            inner, found = _calls(graph.node, functions)
            count += inner
            called += found
    return count, called
