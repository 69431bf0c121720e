"""A picture of a command and what it prints on a terminal: ``python docs/terminal_picture.py FILE.svg COMMAND...``.

``.venv/bin/python docs/terminal_picture.py docs/_static/demo.svg trtcache demo`` makes the picture of the demo. The
command really runs, with its output on a pseudo-terminal; progress, which it writes to standard error, is not shown.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

_COLUMNS = 96


def run_on_terminal(command: list[str]) -> str:
    """Run a command with standard output on a pseudo-terminal, and return what it prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
    # The commands of this Python come first: those of .venv, without its activation.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environ) as process:  # noqa: S603
        os.close(theirs)
        printed = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux's answer when the last process has closed the terminal
                break
            if not data:
                break
            printed += data
    os.close(ours)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed)
    return printed.decode().replace("\r\n", "\n")


def picture(command: list[str], printed: str) -> str:
    """Return an SVG of a terminal with a command and what it printed."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(printed.rstrip()))
    svg = console.export_svg(title="", unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # it requests fonts from another host
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    _, file, *words = sys.argv
    Path(file).write_text(picture(words, run_on_terminal(words)), encoding="utf-8")
