"""Where the calibration of this machine is kept: a file in the directory of the disk cache, whose name says for which machine.

Clearing the cache leaves it there, and without a disk cache there is none.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from polyc.config import cache_settings, debugging
from polyc.digest import sha256
from polyc.log import logger

if TYPE_CHECKING:
    from pathlib import Path

    from polyc.machine.calibration import Calibration

FORMAT = "1"
"""Of what is kept: other ones are not read."""


def place(identity: str) -> str | None:
    """The file for the machine with this `identity`; None where there is no disk cache."""
    settings = cache_settings()
    if settings is None or debugging():
        return None
    return os.path.join(settings[0], f"calibration-{sha256(f'{FORMAT} {identity}'.encode()).hexdigest()[:16]}")


def read(identity: str) -> Calibration | None:
    """What was kept of a machine; None where nothing was, or it makes no sense."""
    file = place(identity)
    if file is None:
        return None
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, ValueError):
        return None
    if not text:
        return None
    import json

    from polyc.machine.calibration import from_plain

    try:
        return from_plain(json.loads(text))
    except (ValueError, OverflowError, RecursionError) as error:
        logger.warning("calibration: %s is not used: %s", file, error)
        return None


def write(identity: str, measured: Calibration) -> Path:
    """Keep a calibration.  Raises OSError with the file's name, also where there is no disk cache."""
    import json

    from polyc.machine.calibration import to_plain

    file, temporary = begin(identity)
    try:
        temporary.write_text(json.dumps(to_plain(measured), indent=2) + "\n")
        os.replace(temporary, file)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return file


def begin(identity: str) -> tuple[Path, Path]:
    """The file that a calibration will be kept in, and an empty one beside it.  Raises OSError as `write` does."""
    import tempfile
    from pathlib import Path

    name = place(identity)
    if name is None:
        raise OSError("the disk cache is off, or has no place")
    file = Path(name)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        handle, temporary = tempfile.mkstemp(dir=file.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    os.close(handle)
    return file, Path(temporary)


def remove(identity: str) -> Path | None:
    """Remove what was kept of a machine; None where nothing was.  Raises OSError."""
    from pathlib import Path

    name = place(identity)
    file = None if name is None else Path(name)
    if file is None or not file.exists():
        return None
    file.unlink()
    return file
