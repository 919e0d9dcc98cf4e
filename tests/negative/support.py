"""What every refusal must show, whatever was wrong."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from polyc.cli import main
from polyc.diagnostics import InternalError, PolycError

ERRORS_PAGE = Path(__file__).parents[2] / "docs/errors.md"


@functools.cache
def documented_codes() -> frozenset[str]:
    return frozenset(re.findall(r"^## ([a-z0-9-]+)$", ERRORS_PAGE.read_text(), re.M))


def check_rendering(text: str) -> None:
    """Every diagnostic has a documented code and a way out; excerpts fit a screen and their carets stand below something."""
    for part in re.split(r"^(?=(?:error|warning)\[)", text.strip(), flags=re.M):
        if not part:
            continue
        lines = part.rstrip().split("\n")
        head = re.fullmatch(r"(?:error|warning)\[([a-z0-9-]+)\]: .+", lines[0])
        assert head is not None, lines[0]
        assert head[1] in documented_codes(), head[1]
        assert not head[1].startswith("internal"), part
        assert lines[-1].startswith("  help: ") and len(lines[-1]) > 12, part
        assert all(len(line) < 1000 for line in lines), "a line that fills a terminal"
        assert "\x1b" not in part and "\0" not in part and "\r" not in part, "characters that move the cursor"
        if len(lines) > 2:
            assert re.fullmatch(r" *--> .+:\d+:\d+", lines[1]), part
            carets = re.fullmatch(r" *\| ( *)(\^+)", lines[-2])
            assert carets is not None, part
            assert len(lines[-2]) <= 140, part


def refuse(call: Callable[[], Any], code: str, *fragments: str) -> PolycError:
    """`call` is refused with `code`, and the text holds all `fragments`."""
    with pytest.raises(PolycError) as caught:
        call()
    error = caught.value
    assert not isinstance(error, InternalError), error
    assert error.code == code, error
    check_rendering(str(error))
    for fragment in fragments:
        assert fragment in str(error)
    return error


def refuse_command(arguments: list[str], code: str, *fragments: str) -> str:
    """The command ends with exit code 1, an empty standard output and diagnostics only on standard error."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1, done.output
    assert done.stdout == "" and "Traceback" not in done.stderr
    check_rendering(done.stderr)
    assert f"error[{code}]" in done.stderr, done.stderr
    for fragment in fragments:
        assert fragment in done.stderr, done.stderr
    return done.stderr
