"""Random edits of a model's package: what direct mode says, against what exporting gives."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING

import pytest

import trtcache
from tests.direct import package
from tests.direct.mutation import mutated
from tests.direct.package import X, load, tiny, write
from tests.effort import tries
from trtcache.cache import Cache
from trtcache.errors import ExportError
from trtcache.frontends.direct.mode import DirectMode
from trtcache.keys.program_digest import exported_digest
from trtcache.lowering.capture import export

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {"model": package.MODEL, "helper": package.HELPER, "deeper": package.DEEPER}


@pytest.mark.torture
def test_no_random_edit_leads_to_another_program(tmp_path: Path, interpreter: str) -> None:
    """Where a manifest holds, exporting gives its program."""
    folder = write(tmp_path / "one")
    load(folder)
    trtcache.compile(tiny(), (X,), backend=interpreter, cache=tmp_path / "cache", direct="on")
    cache, draw, seen = Cache(tmp_path / "cache"), random.Random(7), {"hit": 0, "miss": 0, "broken": 0}
    for _ in range(tries(20, 1000)):
        seen[edited(folder, cache, draw)] += 1
    print(seen)  # noqa: T201  # make torture shows what was tried
    assert seen["miss"] > seen["broken"]


def edited(folder: Path, cache: Cache, draw: random.Random) -> str:
    """Edit one file of the package, and say what direct mode does with the model then."""
    name = draw.choice(list(SOURCES))
    write(folder.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (folder / f"{name}.py").write_text(mutated(SOURCES[name].lstrip("\n"), draw))
        try:
            load(folder)
            model = tiny()
        except Exception:  # noqa: BLE001  # an edit may break the package in any way
            return "broken"
        lookup = DirectMode(model, ((X,), {}, None), cache, mode="on", name="Tiny")
        if not lookup.find():
            return "miss"
        assert lookup.manifest is not None
        try:
            program = export(model, (X,), {}, None)
        except ExportError as error:
            raise AssertionError(
                f"exporting fails, and direct mode hits: {(folder / f'{name}.py').read_text()}"
            ) from error
    assert exported_digest(program) == lookup.manifest.digest, (folder / f"{name}.py").read_text()
    return "hit"
