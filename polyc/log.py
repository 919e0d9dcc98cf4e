"""The log ``polyc``: what `logging` has under that name, where a process has imported `logging` at all.

Who has not, cannot listen: nothing but warnings is said then, and importing `logging` would be a tenth of the time that a
process with a warm cache needs.
"""

from __future__ import annotations

import sys
from typing import Any


class _Log:
    def debug(self, message: str, *values: Any) -> None:
        if "logging" in sys.modules:
            self._logger().debug(message, *values, stacklevel=2)

    def info(self, message: str, *values: Any) -> None:
        if "logging" in sys.modules:
            self._logger().info(message, *values, stacklevel=2)

    def warning(self, message: str, *values: Any) -> None:
        self._logger().warning(message, *values, stacklevel=2)

    def tells_info(self) -> bool:
        """Whether somebody listens to `info`, so that what it says has to be found out."""
        return "logging" in sys.modules and bool(self._logger().isEnabledFor(20))

    def _logger(self) -> Any:
        import logging

        return logging.getLogger("polyc")


logger = _Log()
