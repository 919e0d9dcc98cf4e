"""PyTorch modules → ONNX files in the folder of models, made when first asked for.

``python -m benchmarks.models.export [NAME…]`` makes them beforehand.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from pathlib import Path

from benchmarks.models.places import model_folder
from benchmarks.models.table import MODELS, Model, make_feed

SEED = 20240
OPSET = 17


def build_module(model: Model) -> object:
    """The module in evaluation mode with weights from a fixed seed."""
    import torch
    from torch import nn

    torch.manual_seed(SEED)
    module = model.build()
    for part in module.modules():
        match part:
            case nn.Conv2d() | nn.ConvTranspose2d():
                nn.init.kaiming_normal_(part.weight, mode="fan_in", nonlinearity="relu")
            case nn.BatchNorm2d():
                nn.init.uniform_(part.weight, 0.5, 1.0)
                nn.init.normal_(part.bias, 0, 0.1)
                nn.init.normal_(part.running_mean, 0, 0.1)
                nn.init.uniform_(part.running_var, 0.8, 1.2)
            case nn.LayerNorm():
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.1)
    return module.eval()


def export(name: str, opset: int = OPSET) -> Path:
    """The ONNX file of a model of the table; exported where it is not there yet or the sources have changed."""
    model = MODELS[name]
    path = model_folder() / f"{name}-opset{opset}-{_state()}.onnx"
    if not path.exists():
        import torch

        module = build_module(model)
        feed = make_feed(model, model.tried[1])
        partial = path.with_suffix(f".{os.getpid()}.part")
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                tuple(torch.from_numpy(a) for a in feed.values()),
                str(partial),
                input_names=list(feed),
                output_names=list(model.outputs),
                dynamic_axes={name: dict(axes) for name, axes in model.axes.items()},
                opset_version=opset,
                dynamo=False,
            )
        partial.replace(path)
    return path


def _state() -> str:
    """A digest of the sources that make the models."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    chosen = [p.read_bytes() for p in sources if p.stem in ("vision", "language", "export")]
    return hashlib.sha256(b"".join(chosen)).hexdigest()[:8]


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        print(name, export(name))
