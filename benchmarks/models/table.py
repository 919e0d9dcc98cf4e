"""The table of models: how each is built, what its inputs are at given sizes, how close results must be.

Weights are random: He-scaled for images, so that activations neither vanish nor explode; statistics of normalisations are
set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn

Sizes = Mapping[str, int]
Feed = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Model:
    """One network."""

    name: str
    what: str
    build: Callable[[], nn.Module]
    """Makes the PyTorch module (imports PyTorch)."""
    feed: Callable[[np.random.Generator, Sizes], Feed]
    """Inputs by name, in the order of the module's arguments."""
    axes: Mapping[str, Mapping[int, str]]
    """Dynamic dimensions of each input and output."""
    outputs: tuple[str, ...]
    sizes: Sizes
    """What the benchmark runs beside the batch size ``n``."""
    tried: tuple[Sizes, ...]
    """Sizes at which results are compared with onnxruntime's; the export traces the second, whose sizes differ from 0 and 1."""
    tolerance: float = 1e-4
    """Largest error relative to the largest element of an output."""


def _images(side: str = "x") -> Callable[[np.random.Generator, Sizes], Feed]:
    def feed(rng: np.random.Generator, s: Sizes) -> Feed:
        return {side: rng.standard_normal((s["n"], 3, s["h"], s["w"]), dtype=np.float32)}

    return feed


def _words(rng: np.random.Generator, s: Sizes, vocabulary: int) -> np.ndarray:
    return rng.integers(0, vocabulary, (s["n"], s["s"]), dtype=np.int64)


def _bert_feed(rng: np.random.Generator, s: Sizes) -> Feed:
    lengths = rng.integers(1, s["s"] + 1, s["n"])
    mask = (np.arange(s["s"]) < lengths[:, None]).astype(np.int64)
    return {"ids": _words(rng, s, 30522), "mask": mask, "segments": _words(rng, s, 2)}


def _gpt_feed(rng: np.random.Generator, s: Sizes) -> Feed:
    past = (s["n"], 12, s["p"], 64)
    x = rng.standard_normal((s["n"], s["s"], 768), dtype=np.float32)
    return {"x": x, **{name: rng.standard_normal(past, dtype=np.float32) for name in ("past_key", "past_value")}}


def _resnet18() -> nn.Module:
    from benchmarks.models.vision import ResNet

    return ResNet((2, 2, 2, 2))


def _resnet50() -> nn.Module:
    from benchmarks.models.vision import ResNet

    return ResNet((3, 4, 6, 3), bottleneck=True)


def _mobilenet() -> nn.Module:
    from benchmarks.models.vision import MobileNetV2

    return MobileNetV2()


def _unet() -> nn.Module:
    from benchmarks.models.vision import UNet

    return UNet()


def _bert() -> nn.Module:
    from benchmarks.models.language import Bert

    return Bert()


def _gpt() -> nn.Module:
    from benchmarks.models.language import GptBlock

    return GptBlock()


def _lstm() -> nn.Module:
    from benchmarks.models.language import LstmClassifier

    return LstmClassifier()


_N = {0: "n"}
_NS = {0: "n", 1: "s"}
_NHW = {0: "n", 2: "h", 3: "w"}
_IMAGE = {"h": 224, "w": 224}
_IMAGES = ({"n": 1, **_IMAGE}, {"n": 3, "h": 160, "w": 192})
_CLASSES: dict[str, Any] = {
    "feed": _images(),
    "axes": {"x": _NHW, "y": _N},
    "outputs": ("y",),
    "sizes": _IMAGE,
    "tried": _IMAGES,
}

MODELS: Mapping[str, Model] = {
    m.name: m
    for m in (
        Model("resnet18", "ResNet-18, 224×224", _resnet18, **_CLASSES),
        Model("resnet50", "ResNet-50, 224×224", _resnet50, **_CLASSES),
        Model("mobilenet_v2", "MobileNetV2, 224×224", _mobilenet, **_CLASSES),
        Model(
            "unet",
            "U-Net, 4 levels from 32 channels, 128×128",
            _unet,
            _images(),
            {"x": _NHW, "y": _NHW},
            ("y",),
            {"h": 128, "w": 128},
            ({"n": 1, "h": 128, "w": 128}, {"n": 2, "h": 64, "w": 96}),
        ),
        Model(
            "bert",
            "BERT-base encoder, 128 tokens",
            _bert,
            _bert_feed,
            {"ids": _NS, "mask": _NS, "segments": _NS, "hidden": _NS, "pooled": _N},
            ("hidden", "pooled"),
            {"s": 128},
            ({"n": 1, "s": 128}, {"n": 2, "s": 19}, {"n": 1, "s": 1}),
        ),
        Model(
            "gpt2_block",
            "GPT-2 block, one new token behind 255",
            _gpt,
            _gpt_feed,
            {
                "x": _NS,
                "past_key": {0: "n", 2: "p"},
                "past_value": {0: "n", 2: "p"},
                "y": _NS,
                "key": {0: "n", 2: "t"},
                "value": {0: "n", 2: "t"},
            },
            ("y", "key", "value"),
            {"s": 1, "p": 255},
            ({"n": 1, "s": 1, "p": 255}, {"n": 2, "s": 5, "p": 30}, {"n": 1, "s": 17, "p": 0}),
        ),
        Model(
            "lstm",
            "two LSTM layers in both directions, 64 tokens",
            _lstm,
            lambda rng, s: {"ids": _words(rng, s, 10000)},
            {"ids": _NS, "y": _N},
            ("y",),
            {"s": 64},
            ({"n": 1, "s": 64}, {"n": 3, "s": 7}),
        ),
    )
}


def make_feed(model: Model, sizes: Sizes, seed: int = 0) -> Feed:
    """Inputs at these sizes, the same each time."""
    return model.feed(np.random.default_rng(seed), sizes)
