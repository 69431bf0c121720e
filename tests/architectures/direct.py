"""Write ``docs/evidence/direct.md``: ``python -m tests.architectures.direct``, or ``make direct``.

Each architecture is compiled with direct mode in one process, and with other weights in another one, where each hit is
exported too and compared. Nothing is built: the backend stores the program. The command goes on where an earlier one
ended; another version of a library, in a folder of its own, adds rows::

    pip install --no-deps --target .venv/transformers-5.17/site-packages transformers==5.17.0
    python -m tests.architectures.direct --libraries .venv/transformers-5.17/site-packages --only 'transformers/*'
"""

from __future__ import annotations

import collections
import fnmatch
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.architectures.catalogue import GROUPS, names_of
from tests.architectures.evidence import ROOT, all_rows, current_versions, parse, run
from tests.architectures.page import listed, reasons, shorten, table
from tests.direct.stored import install_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.architectures.evidence import Row, Servers

DOCUMENT = ROOT / "docs" / "evidence" / "direct.md"
STATE = ROOT / ".models" / "direct.jsonl"

_TEXT = """\
# Direct mode: architectures of public libraries

Written by `make direct` with {versions}. Architectures with random weights are exported with
[direct mode](../direct-mode.md) in one process, and looked up in another one with another hash seed and other weights.
There each hit is exported as well (`TRTCACHE_DIRECT=verify`), and the two programs are compared.

- **hit**: the second process performs the operations of the first on tensors without values, and needs no export.
- **verified**: the export gives the program of the hit.
- **different**: it gives another one, which would be a wrong hit.
"""


def try_direct(name: str, servers: Servers, cache: Path, timeout_s: float) -> Row:
    """Return the row of an architecture: the outcomes of direct mode in both processes."""
    request = {"name": name, "cache": str(cache), "timeout_s": timeout_s, "backend": "stored"}
    row = servers.ask("record", request)
    return row if "died" in row else row | servers.ask("verify", request)


def outcome(row: Row) -> str:
    """Return ``verified``, ``different``, or the reason of a miss."""
    if "died" in row:
        return f"not exported: {shorten(row['died'])}"
    if str(row["verify"]).startswith("refused"):
        return "different"
    return "verified" if (row["on"], row["verify"]) == ("hit", "verified") else shorten(row["on"])


def markdown(rows: Iterable[Row]) -> str:
    """Return the page."""
    done = sorted(rows, key=lambda row: (row["name"], row.get("library_version", "")))
    heads = ("library", "version", "exported", "hit and verified", "different")
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for row in done:
        said, library = outcome(row), row["name"].partition("/")[0]
        for key in ((library, row.get("library_version", "")), ("all", "")):
            count = counts.setdefault(key, collections.Counter())
            count.update({"exported": int("died" not in row), said: 1})
    lines = [
        (*key, *(str(count[column]) for column in ("exported", "verified", "different")))
        for key, count in sorted(counts.items(), key=lambda pair: (pair[0][0] == "all", pair[0]))
    ]
    once = {(outcome(row), row["name"]): row for row in done}  # two versions of a library can have one reason
    missed = [(said, row) for (said, _), row in once.items() if said not in {"verified", "different"}]
    text = _TEXT.format(versions=listed({f"torch {row['torch']}" for row in done}))
    return "\n".join([text, *table(heads, lines), "", *reasons("Why the others do not hit", missed)])


def _read(state: Path) -> dict[tuple[str, str], Row]:
    """Return the latest row of each architecture and version of its library."""
    return {(row["name"], row.get("library_version", "")): row for row in all_rows(state)}


def main(argv: Sequence[str] | None = None) -> None:
    """Try all architectures that have no result of this code and these libraries, and write the page."""
    arguments = parse(argv, state=STATE, page=DOCUMENT)
    versions = current_versions() | {"libraries": str(arguments.libraries.absolute().relative_to(ROOT))}
    same = {name for (name, _), row in _read(arguments.state).items() if versions.items() <= row.items()}
    names = [name for group in GROUPS for name in names_of(group) if fnmatch.fnmatch(name, arguments.only)]
    with tempfile.TemporaryDirectory(prefix="trtcache-direct-") as folder:
        os.environ["PYTHONPATH"] = str(install_stored(Path(folder)))  # where the backend that stores programs is found
        if not arguments.page_only:
            left = [name for name in names if arguments.again or name not in same]
            run(left, arguments, versions, try_direct, outcome)
    kept = [row for row in _read(arguments.state).values() if row["trtcache_code"] == versions["trtcache_code"]]
    arguments.page.write_text(markdown(kept))
    differences = [row["name"] for row in kept if outcome(row) == "different"]
    sys.exit(f"another program: {', '.join(differences)}" if differences else 0)


if __name__ == "__main__":
    main()
