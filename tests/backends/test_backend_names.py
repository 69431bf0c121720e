"""No code outside of ``backends`` and ``integrations`` depends on which backend it has."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.documents import ROOT
from trtcache.config.backend_settings import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = ROOT / "trtcache"
COMMANDS = ROOT / "cli"
PACKAGES = tuple({module.partition(":")[0].rpartition(".")[0] for module in BUILT_IN.values()})
SECTIONS = {"tensorrt", "inductor"}


def exceptions(tree: ast.AST) -> Iterator[str]:
    """Yield what depends on a backend: comparisons with its name, imports of its modules, and its settings."""
    for node in ast.walk(tree):
        operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        values = {one.value for operand in operands for one in ast.walk(operand) if isinstance(one, ast.Constant)}
        if names := values & BUILT_IN.keys():
            yield f"{node.lineno}: comparison with {', '.join(sorted(names))}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            modules = []
        yield from (f"{node.lineno}: import of {one}" for one in modules if f"{one}.".startswith(PACKAGES))  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and node.attr in SECTIONS and "settings" in ast.unparse(node.value):
            yield f"{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.match_case) and BUILT_IN.keys() & {
            one.value for one in ast.walk(node.pattern) if isinstance(one, ast.Constant)
        }:
            yield f"{node.pattern.lineno}: case of a backend"


def files() -> list[Path]:
    """Return the files that may not depend on a backend: the commands are among them."""
    own = {PACKAGE / "backends", PACKAGE / "integrations"}
    paths = [*PACKAGE.rglob("*.py"), *COMMANDS.rglob("*.py")]
    return [path for path in sorted(paths) if not own & set(path.parents)]


def names(tree: ast.AST) -> Iterator[str]:
    """Yield each constant that is the name of a backend."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in BUILT_IN:
            yield f"{node.lineno}: {node.value!r}"


def test_no_other_code_depends_on_a_backend() -> None:
    """Hooks of the protocol are used instead."""
    found = {f"{path.relative_to(ROOT)}:{what}" for path in files() for what in exceptions(ast.parse(path.read_text()))}
    assert found == set()


def test_no_command_has_the_name_of_a_backend() -> None:
    """Not as a default, a choice or a key of a table either; examples in a help text may have it."""
    paths = sorted(COMMANDS.rglob("*.py"))
    assert paths
    assert {f"{path.name}:{what}" for path in paths for what in names(ast.parse(path.read_text()))} == set()
    assert [*names(ast.parse('BACKENDS = {"tensorrt": 1}'))] == ["1: 'tensorrt'"]


@pytest.mark.parametrize(
    "code",
    [
        'backend.name == "tensorrt"',
        'entry.kind in ("tensorrt", "x")',
        "settings.tensorrt.refit",
        "self.settings.inductor",
        "import trtcache.backends.tensorrt.build",
        "from trtcache.backends.aot_inductor import libtorch",
        "from trtcache.backends.tensorrt.flavour import TENSORRT",
        'match name:\n    case "aot_inductor": pass',
    ],
)
def test_the_test_finds_what_it_is_for(code: str) -> None:
    """Each form of a dependency is found."""
    assert len(list(exceptions(ast.parse(code)))) == 1
