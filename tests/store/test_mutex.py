"""The lock file of the store's housekeeping."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from trtcache.errors import LockTimeoutError
from trtcache.store.files import hold

if TYPE_CHECKING:
    from pathlib import Path

_HOLDER = """
import sys, time
from pathlib import Path
from trtcache.store.files import hold
with hold(Path(sys.argv[1]), timeout_s=0):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_held_lock_excludes_and_its_file_stays(tmp_path: Path) -> None:
    """A second holder waits in vain, in the same thread too, and the file is never removed."""
    path = tmp_path / "locks" / "one.lock"
    with hold(path, timeout_s=0), pytest.raises(LockTimeoutError), hold(path, timeout_s=0.05):
        pass
    with hold(path, timeout_s=0):
        assert path.exists()
    assert path.exists()


def test_a_killed_holder_leaves_nothing_locked(tmp_path: Path) -> None:
    """The kernel drops the lock with the process."""
    path = tmp_path / "locks" / "one.lock"
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(LockTimeoutError), hold(path, timeout_s=0):
            pass
        holder.kill()
    with hold(path, timeout_s=5):
        pass


def test_a_server_that_forgot_the_lock_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the unlock does not undo what was done under the lock, and the lock is free."""
    flock = fcntl.flock

    def forgotten(fd: int, how: int) -> None:
        if how == fcntl.LOCK_UN:
            raise OSError(errno.EIO, "Input/output error")
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", forgotten)
    for _ in range(2):
        with hold(tmp_path / "one.lock", timeout_s=0):
            pass
