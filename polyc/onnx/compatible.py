"""onnxruntime's names, so that a script changes its import only: ``import polyc.onnx as ort``."""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyc.diagnostics import Diagnostic, PolycWarning, user_stacklevel
from polyc.frontends.onnx.model import read_model
from polyc.onnx.binding import OrtValue
from polyc.onnx.feed import check_output_names
from polyc.onnx.session import Session

PROVIDER = "CPUExecutionProvider"


class GraphOptimizationLevel(enum.IntEnum):
    """onnxruntime's; a session of polyc always does all that it can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """onnxruntime's; kernels of a session run one after the other, each on several threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass
class RunOptions:
    """onnxruntime's; attributes can be set, and change nothing."""

    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept, and ignored."""
        self.entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """What `add_run_config_entry` was given; KeyError where it was not."""
        return self.entries[key]


@dataclass
class SessionOptions:
    """What polyc takes of onnxruntime's class of this name; other attributes can be set, and change nothing.

    `intra_op_num_threads`: at most so many threads in each run; 0: as `polyc.set_num_threads` says."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    enable_profiling: bool = False
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_cpu_mem_arena: bool = True
    execution_mode: Any = ExecutionMode.ORT_SEQUENTIAL
    execution_order: Any = None
    graph_optimization_level: Any = GraphOptimizationLevel.ORT_ENABLE_ALL
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = True
    entries: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, and ignored."""
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """What `add_session_config_entry` was given; KeyError where it was not."""
        return self.entries[key]


class InferenceSession(Session):
    """A `Session`, made as onnxruntime's: ``InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])``.

    `sess_options` may be a `SessionOptions` of polyc's or of onnxruntime's.  Where providers are named, none of
    them the processor's, a warning says so.  Raises as `polyc.onnx.load`."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        _check_providers(providers or ())
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        super().__init__(read_model(path_or_bytes), threads=threads)
        self._options = sess_options

    def get_providers(self) -> list[str]:
        return [PROVIDER]

    def set_providers(self, providers: Sequence[Any], provider_options: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Warns as the constructor does, and changes nothing."""
        _check_providers(providers)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: object = None
    ) -> list[OrtValue]:
        """As `run`, for values with a method ``numpy()``, and giving such ones."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        types = {p.name: p.type for p in self.get_outputs()}
        names = check_output_names(self.get_outputs(), output_names)
        return [OrtValue(value, types[name]) for name, value in zip(names, self.run(names, feed), strict=True)]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {PROVIDER: {}}

    def get_session_options(self) -> Any:
        """What the session was made with."""
        return self._options if self._options is not None else SessionOptions()


def _check_providers(providers: Sequence[Any]) -> None:
    names = [p if isinstance(p, str) else p[0] for p in providers]
    if names and PROVIDER not in names:
        message = f"of the providers {', '.join(map(str, names))} polyc has none: the model runs on the processor"
        help = f"leave providers out, or name {PROVIDER}"
        warnings.warn(
            PolycWarning(Diagnostic("argument-onnx-provider", message, None, help, "warning")), stacklevel=user_stacklevel()
        )


def set_default_logger_severity(severity: int) -> None:
    """Changes nothing: polyc writes to the logger ``polyc`` of the module logging."""


def get_available_providers() -> list[str]:
    """The processor."""
    return [PROVIDER]


def get_device() -> str:
    return "CPU"
