"""``polyc passes``, and what the other verbs show of passes: texts between them, and their times."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from polyc.cli.common import guard_errors
from polyc.diagnostics import ArgumentError, Diagnostic, suggest_name

if TYPE_CHECKING:
    from polyc.driver import Lowered
    from polyc.passes import Ran, Session

F = TypeVar("F", bound=Callable[..., Any])

STAGES = ("program", "scop", "sched", "loops", "ll", "s")
_BETWEEN = re.compile(r"(program|plan|loops):(before|after)=([\w-]+)")


@click.command("passes")
@click.option("--level", type=click.Choice(("program", "plan", "loops")), help="Only the passes of this level.")
@click.option("--json", "as_json", is_flag=True, help="Write a list of objects with name, level, required and why.")
@guard_errors
def passes_command(level: str | None, as_json: bool) -> None:
    """List the passes of the compiler in their order, and what each is for.

    Those that are not required may be left out: --disable-pass NAME, or disable=("NAME",) in Python.

    \b
    Examples:
      polyc passes
      polyc passes --level loops
      polyc passes --json
    """
    from polyc import driver

    found = [(each.name, p) for each in driver.pass_levels() if level in (None, each.name) for p in each.passes]
    if as_json:
        rows = [{"name": p.name, "level": name, "required": p.required, "why": p.why} for name, p in found]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(p.name) for _, p in found)
    for name, p in found:
        click.echo(f"{name:8} {p.name:{width}}  {p.why}{' (required)' if p.required else ''}")


def disable_option(function: F) -> F:
    """``--disable-pass``, whose value is that of the option `disable`."""
    return click.option(
        "--disable-pass",
        "disable",
        multiple=True,
        metavar="NAME[,NAME…]",
        callback=lambda context, parameter, values: tuple(n.strip() for v in values for n in v.split(",") if n.strip()),
        help="Leave passes out (see polyc passes).",
    )(function)


def parse_emit(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A stage, or ``loops:after=NAME`` and the like; anything else is a usage error."""
    if value is None or value in STAGES or _BETWEEN.fullmatch(value):
        return value
    known = suggest_name(value, STAGES) or f"stages are {', '.join(STAGES)}, or loops:after=PASS and the like"
    raise click.BadParameter(f"there is no stage {value!r}: {known}", context, parameter)


def emit_stage(lowered: Lowered, wanted: str) -> str:
    """The text of a stage, or of the value before or after one pass of `lowered`, whose passes were recorded."""
    match = _BETWEEN.fullmatch(wanted)
    if match is None:
        return lowered.as_text(wanted)
    level, side, name = match.groups()
    for ran in reversed(lowered.session.ran):  # what a schedule that was given up left behind comes first
        if ran.level.name == level and ran.step.name == name:
            return ran.level.text(ran.before if side == "before" else ran.after)
    names = [ran.step.name for ran in lowered.session.ran if ran.level.name == level]
    help = (
        suggest_name(name, names)
        or "it is disabled, of no use for this target or these options, or no pass: see `polyc passes`"
    )
    raise ArgumentError(Diagnostic("argument-stage", f"no pass {name} over {level} ran", None, help))


def describe_changes(ran: Iterable[Ran]) -> str:
    """For each pass that changed its value, the difference of the texts."""
    parts = []
    for each in (r for r in ran if r.has_changed):
        before, after = (each.level.text(value).splitlines() for value in (each.before, each.after))
        lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
        parts += [f"*** {each.level.name} after {each.step.name}: {each.step.why} ***", *lines, ""]
    return "\n".join(parts)


def describe_times(sessions: Iterable[Session]) -> str:
    """CPU time of each pass over all recorded compilations, the longest first, and how often it changed something."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    runs: dict[tuple[str, str], int] = defaultdict(int)
    changes: dict[tuple[str, str], int] = defaultdict(int)
    for ran in (r for session in sessions for r in session.ran):
        key = ran.level.name, ran.step.name
        seconds[key] += ran.seconds
        runs[key] += 1
        changes[key] += ran.has_changed
    rows = sorted(seconds, key=lambda key: -seconds[key])
    lines = [f"{'ms':>9}  {'runs':>4}  {'changed':>7}  pass"]
    lines += [f"{1e3 * seconds[k]:9.2f}  {runs[k]:4}  {changes[k]:7}  {k[0]}:{k[1]}" for k in rows]
    return "\n".join([*lines, f"{1e3 * sum(seconds.values()):9.2f}  all passes"])
