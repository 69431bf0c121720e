"""Names and words of the code base: unique classes, functions with verbs or nouns for names, plain English.

``python tests/test_words.py store cli`` prints the findings of some packages; without arguments it prints all.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOCUMENTS = "docs"

PHRASES = (
    "is no such",
    "whoever",
    "such that",
    "asked for",
    "by which",
    "front door",
    "put aside",
    "set aside",
    "told",
    "made of",
    "made anew",
    "nobody",
    "people call",
    "lies in",
    "stands in",
)
"""Phrases that docstrings, messages and documents do not use."""

_PHRASE = re.compile(r"\b(" + "|".join(PHRASES).replace(" ", r"\s+") + r")\b", re.IGNORECASE)
_REGULAR = re.compile(r"[a-z]{3,}ed")
_NOT_PARTICIPLES = {"embed", "exceed", "feed", "indeed", "need", "proceed", "seed", "shed", "speed", "unneeded"}
_IRREGULAR = {
    *("asked", "begun", "bought", "bound", "broken", "brought", "built", "caught", "chosen"),
    *("done", "drawn", "driven", "fallen", "fed", "forgotten", "found", "frozen", "given"),
    *("gone", "grown", "heard", "held", "hidden", "kept", "known", "laid", "led"),
    *("left", "lost", "made", "meant", "met", "paid", "said", "seen", "sent"),
    *("shown", "sold", "sought", "spelled", "spelt", "taken", "thought", "thrown", "told"),
    *("torn", "understood", "unknown", "unseen", "won", "worn", "written"),
}
_PROPERTIES = {"property", "cached_property"}
_FIRST_ADR = 26


def package_of(path: Path) -> str:
    """Return the package, or the loose file of ``trtcache/``, that a source file belongs to; ``cli`` for commands."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "trtcache" else parts[0]


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Parse every source file of the package and of the commands."""
    paths = sorted([*(ROOT / "trtcache").rglob("*.py"), *(ROOT / "cli").rglob("*.py")])
    return {path: ast.parse(path.read_text()) for path in paths}


def packages() -> list[str]:
    """Return the names of all packages and loose files, and ``docs``."""
    return [*sorted({package_of(path) for path in trees()}), DOCUMENTS]


def duplicate_classes() -> list[str]:
    """Return every place where a public class of ``trtcache/`` is defined whose name is used twice."""
    places = defaultdict(list)
    for path, tree in trees().items():
        if path.is_relative_to(ROOT / "trtcache"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}: class {node.name}")
    return [place for found in places.values() if len(found) > 1 for place in found]


def is_participle(name: str) -> bool:
    """Return whether a function's name is a bare participle, leading underscores aside."""
    bare = name.strip("_")
    return bare not in _NOT_PARTICIPLES and (bare in _IRREGULAR or _REGULAR.fullmatch(bare) is not None)


def findings(package: str) -> list[str]:
    """Return ``file:line: finding`` for each participle and each phrase in one package, or in the documents."""
    if package == DOCUMENTS:
        return [found for path in documents() for found in _phrases(path, path.read_text(), 1)]
    found = []
    for path, tree in trees().items():
        if package_of(path) == package:
            found += _tree_findings(path, tree)
    return found


def documents() -> Iterator[Path]:
    """Yield the README, the documents and the recent decision records."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        if int(path.name[:4]) >= _FIRST_ADR:
            yield path


def _tree_findings(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            # A property reads as an attribute does (io.IOBase.closed), so a participle is fine there.
            if is_participle(node.name) and not decorators & _PROPERTIES:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: function {node.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _phrases(path, node.value, node.lineno)


def _phrases(path: Path, text: str, line: int) -> Iterator[str]:
    for match in _PHRASE.finditer(text):
        before = text.count("\n", 0, match.start())
        yield f"{path.relative_to(ROOT)}:{line + before}: {match[0]!r}"


def test_public_class_names_are_unique() -> None:
    """No two public classes of the package have one name."""
    assert duplicate_classes() == []


def test_names_and_phrases() -> None:
    """Functions are not named by bare participles, and texts are free of the phrases; results are by package."""
    assert {package: found for package in packages() if (found := findings(package))} == {}


if __name__ == "__main__":
    for name in sys.argv[1:] or packages():
        sys.stdout.write(f"{name}\n" + "".join(f"  {finding}\n" for finding in findings(name)))
    if len(sys.argv) == 1:
        sys.stdout.write("class names\n" + "".join(f"  {place}\n" for place in duplicate_classes()))
