"""The option ``--setting NAME=VALUE`` of commands that build."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

setting_option = click.option(
    "settings",
    "--setting",
    multiple=True,
    metavar="NAME=VALUE",
    help="A build setting, by dotted name. Repeatable.",
)


def parse_settings(written: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` lines.

    A dotted name is an option of a setting that has several (``inductor.max_autotune=true``). A value is parsed as
    JSON, so numbers, ``true`` and lists have their types, and is otherwise a string; versions are always strings.

    Raises:
        click.BadParameter: a line has no ``=``, or a name is given twice or both with and without options.
    """
    found: dict[str, Any] = {}
    for line in written:
        name, equals, text = line.partition("=")
        field, dot, option = name.strip().partition(".")
        if not (equals and field) or (dot and not option):
            raise click.BadParameter(f"{line!r} is not NAME=VALUE", param_hint="--setting")
        value = text if field == "operator_versions" else _value(text)
        options = found.setdefault(field, {}) if dot else found
        if not isinstance(options, dict) or (option or field) in options:
            raise click.BadParameter(f"{name} is given twice", param_hint="--setting")
        options[option or field] = value
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
