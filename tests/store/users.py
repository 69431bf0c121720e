"""Other users and groups: what only root can try, in children that become them."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALICE, BOB, OUTSIDER, GROUP = 40001, 40002, 40003, 40100
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")


def as_user(user: int, work: Callable[[], object], *, umask: int = 0o022, group: int = GROUP) -> None:
    """Run ``work`` in a child process as this user, with a private group and membership in ``group``."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([group] if group else [])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.umask(umask)
            for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
                os.environ[name] = tempfile.mkdtemp(prefix=f"user-{user}-", dir=os.environ["TRTCACHE_TEST_HOMES"])
            work()
            code = 0
        except BaseException:  # noqa: BLE001  # the parent fails
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that every user can reach and make things in, as in /tmp."""
    made = Path(tempfile.mkdtemp(prefix="trtcache-users-", dir="/tmp"))  # pytest's own are closed to others
    made.chmod(0o1777)
    os.environ["TRTCACHE_TEST_HOMES"] = str(made)
    try:
        yield made
    finally:
        del os.environ["TRTCACHE_TEST_HOMES"]
        shutil.rmtree(made)
