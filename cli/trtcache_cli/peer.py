"""The second process of ``trtcache doctor PATH``: executes commands from standard input, one line each.

Run as ``python -I peer.py DIRECTORY``. It imports the standard library only, for a fast start.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.002
LONGEST_S = 60.0
_PAGE = 4096


class Peer:
    """Commands of the peer. Every answer is text without surrounding whitespace."""

    def __init__(self, directory: Path) -> None:
        """Work in a directory that both processes see."""
        self._directory = directory
        self._held = -1

    def lock(self, name: str) -> str:
        """Lock a file and keep it: ``held``, or ``refused`` if another process has it, or the kernel's error."""
        fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return "refused"
        except OSError as error:
            os.close(fd)
            return f"error {error.strerror}"
        self._held = fd
        return "held"

    def unlock(self, _: str) -> str:
        """Release the lock."""
        os.close(self._held)
        return "free"

    def see(self, name: str) -> str:
        """Poll for a file and return when it appeared; first print whether it exists."""
        path = self._directory / name
        _say("there" if path.exists() else "missing")
        end_s = time.monotonic() + LONGEST_S
        while time.monotonic() < end_s:
            if path.exists():
                return repr(time.monotonic())
            _exit_if_alone()
            time.sleep(POLL_S)
        return "never"

    def read(self, name: str) -> str:
        """Read a file that is being replaced, until one named ``done`` exists; return the reads and the bad ones."""
        path, reads, bad = self._directory / name, 0, 0
        _say("reading")
        end_s = time.monotonic() + LONGEST_S
        while time.monotonic() < end_s and not (self._directory / "done").exists():
            _exit_if_alone()
            reads += 1
            try:
                raw = path.read_bytes()
            except OSError:
                bad += 1
                continue
            bad += len(raw) != 4 * _PAGE or len(set(raw)) != 1
        return f"{reads} {bad}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _exit_if_alone() -> None:
    """Exit if the standard input has ended: during a command nothing else comes from there."""
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.exit()


def main() -> None:
    """Execute the commands on standard input until it ends."""
    peer = Peer(Path(sys.argv[1]))
    actions: dict[str, Callable[[str], str]] = {
        "lock": peer.lock,
        "unlock": peer.unlock,
        "see": peer.see,
        "read": peer.read,
    }
    _say("ready")
    for line in sys.stdin:
        action, _, argument = line.strip().partition(" ")
        _say(actions[action](argument))


if __name__ == "__main__":
    main()
