"""Values of the runner's options."""

from __future__ import annotations

import click


def split_names(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def split_threads(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    if value is None:
        return []
    items = split_names(context, parameter, value)
    if not items or not all(item.isdigit() and int(item) > 0 for item in items):
        raise click.BadParameter("a comma-separated list of positive numbers, such as 1,2")
    return [int(item) for item in items]
