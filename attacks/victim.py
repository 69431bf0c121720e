"""A victim of an attack on a remote: a child process with credentials of its own, which is watched."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from attacks.stage import Succeeded

SECRETS = {"AWS_ACCESS_KEY_ID": "AKIDATTACK", "AWS_SECRET_ACCESS_KEY": "c2VjcmV0", "AWS_SESSION_TOKEN": "dG9rZW4"}


def run_victim(folder: Path, name: str, act: Callable[[], int]) -> None:
    """Run a victim in a child process; ``act`` returns its exit code, and writes why it is not 0 to ``folder / "why"``.

    Raises:
        Succeeded: the child ended with another code than 0.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            code = act()
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        why = (folder / "why").read_text() if (folder / "why").exists() else f"the victim ended with {code}"
        raise Succeeded(f"{name}: {why}")


def prepare_victim(folder: Path) -> list[str]:
    """Set the victim's credentials, and return a list to which each message of its log is added."""
    os.environ.update(SECRETS, XDG_CACHE_HOME=str(folder / "user"))
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.disable(logging.NOTSET)
    logging.getLogger("trtcache").addHandler(handler)
    logging.getLogger("trtcache").setLevel(logging.DEBUG)
    return texts
