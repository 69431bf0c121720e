"""Several processes, one engine: single flight, hits that import little, and no build where none is allowed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

HIT_IMPORTS = ("torch._inductor", "sqlalchemy", "alembic", "rich", "filelock")

# torch.export imports parts of Inductor by itself in some releases, so what compile adds is what counts.
PROGRAM = """
import json, sys, torch, trtcache
from trtcache import lowering
from trtcache.backends import registry
from tests.models import Affine

x = torch.arange(12.0).reshape(3, 4)
keep = registry.find("aot_inductor", "cpu").capabilities.keep
lowering.lower(Affine(), (x,), keep=keep)
before = set(sys.modules)
compiled = trtcache.compile(Affine(3.0), (x,))
found = compiled(x)[0].sum().item()
added = [name for name in IMPORTS if name in set(sys.modules) - before]
part = compiled.report.partitions[0]
again = trtcache.key(Affine(), (x,)).digest
print(json.dumps({"again": again, "outcome": part.outcome, "key": part.key.digest, "found": found, "added": added}))
"""
EXPECTED = 66.0 * 4 * 3 + 3 * 12


def _program() -> str:
    return f"IMPORTS = {HIT_IMPORTS!r}\n{PROGRAM}"


def _answer(process: Any) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that these processes share."""
    return tmp_path_factory.mktemp("shared") / "cache"


def test_two_processes_that_want_one_engine_build_it_once(
    start_python: Callable[..., Any], root: Path, build_count: Callable[[Path], int]
) -> None:
    """Started together on a cold key, one builds and the other waits for it; both answer right."""
    running = [start_python(_program(), TRTCACHE_DIR=str(root)) for _ in range(2)]
    answers = [_answer(process) for process in running]
    assert sorted(answer["outcome"] for answer in answers) == ["built", "hit"]
    assert {answer["found"] for answer in answers} == {EXPECTED}
    # The one that built has Inductor in it by now, and what a build writes into its configuration.
    assert len({answer[name] for answer in answers for name in ("key", "again")}) == 1
    assert build_count(root) == 1


def test_a_later_process_hits_and_imports_neither_inductor_nor_a_database(
    start_fresh_python: Callable[..., Any], root: Path, build_count: Callable[[Path], int]
) -> None:
    """With builds forbidden it has the engine, with its own weights, and loads no module that only a build needs."""
    built = build_count(root)
    answer = _answer(start_fresh_python(_program(), TRTCACHE_DIR=str(root), TRTCACHE_FORBID_BUILD="1"))
    assert (answer["outcome"], answer["found"], answer["added"]) == ("hit", EXPECTED, [])
    assert build_count(root) == built == 1


def test_the_key_does_not_change_by_inductors_import_but_by_its_configuration(
    start_fresh_python: Callable[..., Any],
) -> None:
    """Importing Inductor's configuration leaves the key as it was; setting an option in it changes the key."""
    code = """
    import json, torch, trtcache
    from tests.models import Affine
    x = torch.ones(3, 4)
    before = trtcache.key(Affine(), (x,)).digest
    import torch._inductor.config
    assert trtcache.key(Affine(), (x,)).digest == before
    with torch._inductor.config.patch(max_autotune=True):
        assert trtcache.key(Affine(), (x,)).digest != before
    print(json.dumps({"same": trtcache.key(Affine(), (x,)).digest == before}))
    """
    assert _answer(start_fresh_python(code)) == {"same": True}


def test_a_file_is_answered_for_in_a_new_process_without_export_lowering_or_a_database(
    start_fresh_python: Callable[..., Any], root: Path, tmp_path: Path
) -> None:
    """By an alias, with its own weights, and without importing what only the long way or a database needs."""
    code = f"""
    import json, sys, torch, trtcache

    names = {(*HIT_IMPORTS, "sympy", "torch._export.serde", "safetensors")!r}
    path, x = {str(tmp_path / "affine.pt2")!r}, torch.arange(12.0).reshape(3, 4)
    if MAKE:
        from tests.models import Affine
        torch.export.save(torch.export.export(Affine(3.0), (x,)), path)
    before = set(sys.modules)
    compiled = trtcache.compile(path)
    found = compiled(x)[0].sum().item()
    added = [name for name in names if name in set(sys.modules) - before]
    print(json.dumps([compiled.report.route, compiled.report.partitions[0].outcome, found, added]))
    """
    first = _answer(start_fresh_python(code.replace("MAKE", "True"), TRTCACHE_DIR=str(root)))
    assert (first[0], first[2]) == ("lowered", EXPECTED)
    second = _answer(
        start_fresh_python(code.replace("MAKE", "False"), TRTCACHE_DIR=str(root), TRTCACHE_FORBID_BUILD="1")
    )
    assert second == ["alias", "hit", EXPECTED, []]
