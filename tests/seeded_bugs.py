"""Put each of sixteen known bugs into a copy of the source, one at a time, and see that a test finds it.

``make bugs`` runs it: ``python -m tests.seeded_bugs [NAME...]``. The bugs are those that stores like this one have had:
flushes left out or in the wrong order, locks unlinked, bytes used unchecked, links followed. The tests that are to find
them must pass on the unchanged copy first. The exit code is 1 if one is not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PARTS = ("trtcache", "cli", "migrations", "tests", "pyproject.toml")
_POWER = "tests/crash/test_power_cuts.py"


@dataclass(frozen=True)
class Bug:
    """A bug: what is replaced by what in which file, and which tests are to find it."""

    name: str
    path: str
    old: str
    new: str
    found_by: tuple[str, ...]


_POLLS = """\
    began_s, step_s = time.monotonic(), 0.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold(path, timeout_s=step_s))
                break
            except LockTimeoutError as error:
                waited_s = time.monotonic() - began_s
"""
BUGS = (
    Bug(
        "the file is not flushed",
        "trtcache/store/disk.py",
        "            os.fsync(temporary.fd)\n",
        "",
        (_POWER,),
    ),
    Bug(
        "the directory is not flushed",
        "trtcache/store/files.py",
        "        if durable:\n            sync_directory(path.parent)\n",
        "",
        (_POWER,),
    ),
    Bug(
        "the directories of synced entries are not flushed",
        "trtcache/store/sync.py",
        "    target.make_durable(record.digest for record in records)\n",
        "",
        (_POWER, "tests/store/test_transfer.py"),
    ),
    Bug(
        "the file is flushed after it is renamed",
        "trtcache/store/files.py",
        "        self.close()\n        try:\n            self.path.rename(path)\n",
        "        try:\n            self.path.rename(path)\n            os.fsync(self.fd)\n            self.close()\n",
        (_POWER, "tests/store/test_files.py"),
    ),
    Bug(
        "a flush that failed is repeated",
        "trtcache/store/disk.py",
        "            os.fsync(temporary.fd)\n",
        "            try:\n                os.fsync(temporary.fd)\n"
        "            except OSError:\n                os.fsync(temporary.fd)\n",
        ("tests/store/test_disk.py",),
    ),
    Bug(
        "the index has a write-ahead log that is not flushed",
        "trtcache/store/index.py",
        '"PRAGMA journal_mode=TRUNCATE", "PRAGMA synchronous=FULL"',
        '"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL"',
        ("tests/store/test_index.py",),
    ),
    Bug(
        "the index deletes its journal",
        "trtcache/store/index.py",
        '"PRAGMA journal_mode=TRUNCATE"',
        '"PRAGMA journal_mode=DELETE"',
        ("tests/store/test_index.py",),
    ),
    Bug(
        "the lock file is unlinked",
        "trtcache/store/files.py",
        "            opened.discard(fd)\n",
        "            opened.discard(fd)\n            path.unlink(missing_ok=True)\n",
        ("tests/store/test_mutex.py", "tests/crash/test_single_flight.py"),
    ),
    Bug(
        "no digest is compared",
        "trtcache/store/reader.py",
        '        if f"b3:{hash_bytes(data).hex()}" != digest:\n',
        '        if not f"b3:{hash_bytes(data).hex()}":\n',
        ("tests/store/test_damage.py",),
    ),
    Bug(
        "only what is stored has its digest compared",
        "trtcache/store/reader.py",
        "        self._check_digest(plain, member, member.digest)\n",
        "",
        ("tests/store/test_artifact.py",),
    ),
    Bug(
        "an entry is served for another key",
        "trtcache/store/reader.py",
        "        if file.header.key.digest != digest:\n",
        "        if not file.header.key.digest:\n",
        ("tests/store/test_damage.py",),
    ),
    Bug(
        "links are followed",
        "trtcache/store/reader.py",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_CLOEXEC",
        ("tests/store/test_artifact.py",),
    ),
    Bug(
        "an error of close is passed over",
        "trtcache/store/files.py",
        "        if fd >= 0:\n            os.close(fd)\n",
        "        if fd >= 0:\n            with suppress(OSError):\n                os.close(fd)\n",
        ("tests/store/test_files.py",),
    ),
    Bug(
        "a memo is unpickled",
        "trtcache/keys/key.py",
        "            written = json.loads(data)\n",
        "            written = __import__('pickle').loads(data)\n",
        ("tests/keys/test_alias.py",),
    ),
    Bug(
        "patience is measured by the wall clock",
        "trtcache/store/single_flight.py",
        _POLLS,
        _POLLS.replace("monotonic", "time"),
        ("tests/store/test_flight.py",),
    ),
    Bug(
        "what others may change is mapped",
        "trtcache/store/disk.py",
        "file.load(mapped=self.private)",
        "file.load(mapped=True)",
        ("tests/store/test_disk.py",),
    ),
)


def copied(directory: Path) -> Path:
    """Copy the source into a directory, and return that."""
    for part in PARTS:
        source = PROJECT / part
        ignored = shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, directory / part, ignore=ignored)
        else:
            shutil.copy(source, directory / part)
    return directory


def passes(directory: Path, tests: tuple[str, ...]) -> bool:
    """Say whether these tests pass in a copy of the source.

    Raises:
        RuntimeError: none of them ran: a bug is not found by tests that are skipped.
    """
    paths = os.pathsep.join(str(directory / part) for part in ("", "cli", "migrations"))
    environ = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not re.search("passed|failed", done.stdout):
        raise RuntimeError(f"{' '.join(tests)} did not run: {done.stdout[-600:]} {done.stderr[-600:]}")
    return done.returncode == 0


def is_found(bug: Bug) -> bool:
    """Say whether the tests that pass without a bug fail with it.

    Raises:
        RuntimeError: what the bug replaces is not there once, or its tests fail without it.
    """
    with tempfile.TemporaryDirectory(prefix="seeded-bug-") as place:
        directory = copied(Path(place))
        if not passes(directory, bug.found_by):
            raise RuntimeError(f"{bug.name}: its tests fail without it")
        path = directory / bug.path
        source = path.read_text()
        if source.count(bug.old) != 1:
            raise RuntimeError(f"{bug.name}: {bug.path} has what it replaces {source.count(bug.old)} times")
        path.write_text(source.replace(bug.old, bug.new))
        return not passes(directory, bug.found_by)


def main(names: list[str]) -> int:
    """Try the bugs of these names, or all; print which were found."""
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    found = 0
    for bug in chosen:
        seen = is_found(bug)
        found += seen
        sys.stdout.write(f"{'found' if seen else 'NOT FOUND'}\t{bug.name}\t{' '.join(bug.found_by)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{found} of {len(chosen)} found\n")
    return 0 if found == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
