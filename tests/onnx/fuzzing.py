"""Models of ONNX's backend suite, mutated: loading and running one gives results or a named error, in bounded memory.

``python -m tests.onnx.fuzzing SEED COUNT`` prints how often it ended in which way, and what went wrong; exit code 1 then.
"""

from __future__ import annotations

import collections
import random
import resource
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import polyc.onnx
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.element_types import numpy_type
from tests.onnx.suite import Case

MEMORY = 4 << 30
"""Bytes of address space beside what the process has already."""
NUMBERS = (0, -1, 1, 3, 7, -9, 1 << 33, 1 << 40, -(1 << 62))
SMALLEST = 20_000
"""Bytes of the models that are mutated."""


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """A few bytes changed, inserted, deleted, repeated, or the end cut off."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        kind, at = rng.randrange(6), rng.randrange(max(1, len(data)))
        if kind == 0 and data:
            data[at] = rng.randrange(256)
        elif kind == 1 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            other = rng.randrange(max(1, len(data)))
            data[at : at + 8] = data[other : other + 8]
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


def mutate_graph(rng: random.Random, model: onnx.ModelProto, operators: list[str]) -> None:
    """A few attributes, names, operators, types or shapes of a graph changed."""
    graph = model.graph
    for _ in range(rng.randint(1, 3)):
        if not graph.node:
            return
        node = rng.choice(graph.node)
        port = rng.choice(graph.input) if graph.input else None
        dims = None if port is None else port.type.tensor_type.shape.dim
        match rng.randrange(12):
            case 0 if node.attribute:
                mutate_attribute(rng, rng.choice(node.attribute))
            case 1 if node.attribute:
                del node.attribute[rng.randrange(len(node.attribute))]
            case 2 if node.input:
                node.input[rng.randrange(len(node.input))] = rng.choice([*node.input, ""])
            case 3 if node.input:
                del node.input[rng.randrange(len(node.input))]
            case 4:
                node.op_type = rng.choice(operators)
            case 5 if port is not None and port.type.HasField("tensor_type"):
                port.type.tensor_type.elem_type = rng.choice([1, 2, 3, 6, 7, 9, 10, 11, 16])
            case 6 if dims:
                dims[rng.randrange(len(dims))].dim_value = rng.choice([0, 1, 2, 3, 5, 17])
            case 7 if dims:
                del dims[rng.randrange(len(dims))]
            case 8 if dims is not None and port is not None and port.type.HasField("tensor_type") and len(dims) < 6:
                dims.add(dim_value=rng.choice([0, 1, 2, 3]))
            case 9:
                node.output.append(f"extra{rng.randrange(3)}")
            case 10:
                model.opset_import[0].version = rng.randint(7, 24)
            case 11:
                name = rng.choice(["axis", "axes", "keepdims", "mode", "to"])
                node.attribute.append(onnx.helper.make_attribute(name, rng.choice([0, 1, -1, [0, 1], "linear"])))


def mutate_attribute(rng: random.Random, a: onnx.AttributeProto) -> None:
    """Another value of the same type."""
    if a.type == a.INT:
        a.i = rng.choice((*NUMBERS, a.i + 1))
    elif a.type == a.INTS and a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
    elif a.type == a.FLOAT:
        a.f = rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e30])
    elif a.type == a.STRING:
        a.s = rng.choice([b"", b"SAME_UPPER", b"bogus", b"\xff", b"VALID"])
    elif a.type == a.TENSOR and a.t.HasField("raw_data"):
        a.t.raw_data = rng.randbytes(len(a.t.raw_data))


def draw_inputs(rng: random.Random, session: polyc.onnx.Session) -> dict[str, np.ndarray]:
    """What the inputs declare; integers are mostly small, now and then huge or negative."""
    feed = {}
    for p in session.get_inputs():
        dtype = numpy_type(p.type)
        shape = [d if isinstance(d, int) else 2 for d in p.shape or ()]
        if dtype is None:
            feed[p.name] = np.asarray(["a", "b"], object)
        elif dtype.kind in "iu":
            info, count = np.iinfo(dtype), int(np.prod(shape))
            numbers = [rng.choice(NUMBERS) if rng.random() < 0.1 else rng.randrange(4) for _ in range(count)]
            feed[p.name] = np.array([min(max(n, info.min), info.max) for n in numbers], dtype).reshape(shape)
        else:
            feed[p.name] = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return feed


def main(seed: int, count: int) -> int:
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("ignore")
    models = [Case(t.name, "node", t).model for t in load_model_tests(kind="node")]
    models = [m for m in models if m.ByteSize() < SMALLEST]
    operators = [m.graph.node[0].op_type for m in models]
    rng = random.Random(seed)
    seen: collections.Counter[str] = collections.Counter()
    n_bad = 0
    for k in range(count):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(models))
        if k % 4:
            mutate_graph(rng, model, operators)
        content = model.SerializeToString()
        if k % 4 == 0:
            content = mutate_bytes(rng, content)
        try:
            session = polyc.onnx.load(content)
            session.run(None, draw_inputs(rng, session))
            seen["results"] += 1
        except PolycError as error:
            seen[error.code] += 1
            if error.code.startswith("internal") or not str(error):
                n_bad += 1
                print(f"{model.graph.name} ({k}): {error}")
        except MemoryError:
            seen["MemoryError"] += 1
        except BaseException:
            n_bad += 1
            print(f"{model.graph.name} ({k}): {traceback.format_exc(limit=-4)}")
    print(dict(seen))
    return int(n_bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
