"""The option ``--setting NAME=VALUE`` of commands that build."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

setting_option = click.option(
    "settings",
    "--setting",
    multiple=True,
    metavar="NAME=VALUE",
    help="A build setting, or an option of one as in inductor.max_autotune=true. VALUE is JSON or text. Repeatable.",
)


def parse_settings(written: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` lines.

    ``a.b=1`` sets option ``b`` of setting ``a`` (``inductor.max_autotune=true``). A value is parsed as JSON, so that
    numbers, ``true`` and lists have their types, and is otherwise a string; the version of an operator stays a string.

    Raises:
        click.BadParameter: a line has no ``=``, a name is given twice or both as a whole and by option, or a value is
            ``True``, ``False`` or ``None``, which would be strings.
    """
    found: dict[str, Any] = {}
    whole = set[str]()
    for line in written:
        name, equals, text = line.partition("=")
        field, dot, option = name.strip().partition(".")
        if not (equals and field) or (dot and not option):
            raise click.BadParameter(f"{line!r} is not NAME=VALUE", param_hint="--setting")
        is_version = bool(dot) and field == "operator_versions"
        if not is_version and text.strip() in _JSON_OF_PYTHON:
            word = _JSON_OF_PYTHON[text.strip()]
            raise click.BadParameter(f"{line!r}: write {word}, as in JSON", param_hint="--setting")
        value = text if is_version else _value(text)
        options = found.setdefault(field, {}) if dot else found
        if field in whole or (option or field) in options:
            raise click.BadParameter(f"{name} is given twice", param_hint="--setting")
        options[option or field] = value
        if not dot:
            whole.add(field)
    return found


_JSON_OF_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
