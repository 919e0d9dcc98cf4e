"""Where generated and downloaded models lie: a folder outside the repository."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "POLYC_MODELS"
"""Environment variable that moves the folder."""


def model_folder() -> Path:
    """The folder of models, made if need be: `POLYC_MODELS`, else a folder beside other caches of the user."""
    given = os.environ.get(VARIABLE)
    folder = Path(given) if given else user_cache_path("polyc-models", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
