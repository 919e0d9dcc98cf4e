"""``polyc`` and ``python -m polyc``."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """The command line.  While its modules are read Ctrl-C ends the process without a word, as it ends programs in C."""
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdout is None:  # closed: writing to it is an error, and no file that is opened later takes its number
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    from polyc.cli import main as run

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
