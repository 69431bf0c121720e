"""What the documents show of commands, and how it is compared with what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_LIKE = (
    (r"\b([0-9a-f]{2})/\1[0-9a-f]{62}\b", "<digest>"),  # of a file in the folder that its first digits name
    (r"\b[0-9a-f]{12,64}\b", "<digest>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00", "<time>"),
    (r"(?<!\w)[\d.,]+(e[-+]\d+)? ?(us|ms|s|min|h)\b", "<duration>"),
    (r"(?<!\w)[\d.,]+ ?(B|kB|MB|GB)\b", "<size>"),
    (r"(?<!\w)[\d.]+(e[-+]?\d+)?x?%?(?!\w)", "<number>"),
    (r" +", " "),
)


def python_blocks(text: str) -> list[str]:
    """Return the blocks of Python in the text of a document."""
    return _PYTHON.findall(text)


def definitions(name: str) -> str:
    """Return the blocks of a document that define functions, as one piece of code."""
    return "\n".join(block for block in python_blocks((ROOT / name).read_text()) if "\ndef " in block)


def console(name: str) -> dict[str, list[list[str]]]:
    """Return what a document shows on a terminal: the lines that each command prints, for each time it is shown."""
    shown: dict[str, list[list[str]]] = {}
    for block in _CONSOLE.findall((ROOT / name).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip().splitlines()
            shown.setdefault(command, []).append(lines)
    return shown


def shape(line: str) -> str:
    """Return a line without what differs between two runs: ``2 hits, 12 ms`` is ``<number> hits, <duration>``."""
    line = plain(line)
    for pattern, word in _LIKE:
        line = re.sub(pattern, word, line)
    return line.strip()


def plain(line: str) -> str:
    """Return a line of a terminal without bold type and colours."""
    return _STYLE.sub("", line)
