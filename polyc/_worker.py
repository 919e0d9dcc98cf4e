"""``python -m polyc._worker``: compiles what another process of polyc asks for (`polyc.jobs`)."""

from __future__ import annotations

import os
import sys


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    from polyc.jobs import work

    work(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
