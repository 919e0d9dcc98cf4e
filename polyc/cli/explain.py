"""``polyc explain``: what the compiler understood, decided, and why."""

from __future__ import annotations

import click

from polyc.cli.common import Sizes, guard_errors, known_sizes, load_operator, source_options


@click.command("explain")
@source_options
@guard_errors
def explain_command(source: str, entry: str | None, sizes: Sizes, target: str | None) -> None:
    """Show domains, dependences, schedule and tiles with their reasons, and the loops as pseudo-C.

    \b
    Examples:
      polyc explain softmax.tc
      polyc explain softmax.tc --size N=64,D=1000 --target x86-64-v4
    """
    text = load_operator(source, entry, target, sizes).lower(**known_sizes(sizes)).explain()
    click.echo(text.rstrip("\n"))
