"""onnxruntime's names, so that a script changes its import only: ``import polyc.onnx as ort``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyc.diagnostics import Diagnostic, PolycWarning
from polyc.frontends.onnx.model import read_model
from polyc.onnx.session import Session
from polyc.runtime.threads import user_stacklevel

PROVIDER = "CPUExecutionProvider"


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
    execution_mode: Any = None
    execution_order: Any = None
    graph_optimization_level: Any = None
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
        names = [p if isinstance(p, str) else p[0] for p in providers or ()]
        if names and PROVIDER not in names:
            message = f"of the providers {', '.join(map(str, names))} polyc has none: the model runs on the processor"
            help = f"leave providers out, or name {PROVIDER}"
            warnings.warn(
                PolycWarning(Diagnostic("argument-onnx-provider", message, None, help, "warning")), stacklevel=user_stacklevel()
            )
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        super().__init__(read_model(path_or_bytes), threads=threads)
        self._options = sess_options

    def get_providers(self) -> list[str]:
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {PROVIDER: {}}

    def get_session_options(self) -> Any:
        """What the session was made with."""
        return self._options if self._options is not None else SessionOptions()


def get_available_providers() -> list[str]:
    """The processor."""
    return [PROVIDER]


def get_device() -> str:
    return "CPU"
