"""Where generated and downloaded models lie: a folder outside the repository."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "POLYC_MODELS"
"""Environment variable that moves the folder."""


def model_folder() -> Path:
    """The folder of models, made if need be: `POLYC_MODELS`, else ``polyc-models`` among the user's caches."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get(VARIABLE) or cache / "polyc-models")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
