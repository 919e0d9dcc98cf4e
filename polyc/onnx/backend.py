"""polyc behind ONNX's own interface of backends, which its test suite drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from polyc.frontends.onnx.element_types import numpy_type
from polyc.onnx.session import Session, load


class PreparedModel(BackendRep):
    """A model that runs on arrays in the order of its inputs; `session` is behind it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in order, as a named tuple.  `inputs`: one array for each input, or a dict by name."""
        ports = self.session.get_inputs()
        if isinstance(inputs, dict):
            feed = inputs
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
            feed = {p.name: _as_declared(v, p.type) for p, v in zip(ports, given, strict=False)}
        names = [p.name for p in self.session.get_outputs()]
        return namedtupledict("Outputs", names)(*self.session.run(None, feed))


class PolycBackend(Backend):
    """``onnx.backend.base.Backend``: `prepare`, `run_model`, `run_node`.  The keyword `strict` is that of `polyc.onnx.load`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model is one, and the device is ours."""
        from polyc.diagnostics import PolycError

        try:
            load(model, strict=bool(kwargs.get("strict", False)))
        except PolycError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """A model that runs on lists of arrays."""
        return PreparedModel(load(model, strict=bool(kwargs.get("strict", False)), threads=kwargs.get("threads")))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node for arrays in the order of its inputs.  `opset_version`: of the operator set (the newest)."""
        given = [np.asarray(v) for v in inputs]
        names = [n for n in node.input if n]
        ports = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, given, strict=False)
        ]
        results = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = onnx.helper.make_graph([node], "node", ports, results)
        version = int(kwargs.get("opset_version", onnx.defs.onnx_opset_version()))
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **kwargs).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The processor only."""
        return device.split(":")[0] == "CPU"


def _as_declared(value: Any, kind: str) -> Any:
    """Test data gives scalars as Python numbers."""
    dtype = numpy_type(kind)
    return value if dtype is None or value is None or isinstance(value, np.ndarray) else np.asarray(value, dtype)


prepare = PolycBackend.prepare
run_model = PolycBackend.run_model
run_node = PolycBackend.run_node
supports_device = PolycBackend.supports_device
is_compatible = PolycBackend.is_compatible
