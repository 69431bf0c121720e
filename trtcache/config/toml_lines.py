"""Edits of single settings in the text of a TOML file, which keep its comments and the rest unchanged."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool | list[str]"

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
_VALUE = rf"(\[(?:{_STRING}|[^\]\"'])*\]|{_STRING}|[A-Za-z0-9+.:_-]+)"


def format_toml(value: Value) -> str:
    """Return a value as TOML: a list with an item on each line."""
    if isinstance(value, list):
        items = "".join(f"\n  {json.dumps(item, ensure_ascii=False)}," for item in value)
        return f"[{items}\n]" if value else "[]"
    return json.dumps(value, ensure_ascii=False)  # strings, numbers and booleans are the same in JSON


def set_line(text: str, name: str, value: Value) -> str:
    """Return the text with a setting changed, or added as the first line: after a table it would be part of it."""
    line = f"{name} = {format_toml(value)}"
    edited, count = _line(name, "").subn(lambda _: line, text, count=1)
    return edited if count else f"{line}\n{text}"


def remove_line(text: str, name: str) -> str:
    """Return the text without a setting and the comment on its line."""
    return _line(name, r"[ \t]*(#[^\n]*)?(\n|\Z)").sub("", text, count=1)


def _line(name: str, end: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(name)}[ \t]*=[ \t]*{_VALUE}{end}", re.MULTILINE)
