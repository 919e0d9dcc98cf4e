"""``python -m polyc._worker``: compiles what another process of polyc asks for (`polyc.jobs`)."""

from __future__ import annotations

import gc
import os
import socket
import sys


def main() -> None:
    gc.disable()  # until all is imported
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    from polyc.jobs import work

    control = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
    try:
        work(sys.stdin.buffer, answers, control)
    except BrokenPipeError:  # whoever asked has ended, and nobody is to be told
        os._exit(1)


if __name__ == "__main__":
    main()
