"""Look-ups of ``.pt2`` files without torch: the keys are those of a process with torch, or torch is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.models import Affine
from trtcache.bundle.file_alias import FileLookup, map_cpu_program
from trtcache.bundle.load_program import TorchNeeded
from trtcache.cache import Cache
from trtcache.frontends.source import CompileOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

OPTIONS = """
from pathlib import Path
from trtcache.cache import Cache
from trtcache.frontends.source import CompileOptions

path, cache = Path("{path}"), Cache("{folder}/cache")
choices = [
    CompileOptions.of(backend, settings, target)
    for backend in ("auto", "aot_inductor")
    for settings in ({{}}, {{"inductor": {{"max_autotune": True}}}}, {{"autocast": "bf16"}})
    for target in (None, "x86-64-v2")
]
"""
WITHOUT = """
import sys
from trtcache.bundle.file_alias import FileLookup, map_cpu_program

print([FileLookup.of(options, cache).alias_key_of(map_cpu_program(path)).digest for options in choices])
assert "torch" not in sys.modules
"""
WITH = """
from trtcache.compiler.alias_lookup import AliasLookup
from trtcache.frontends.resolve import resolve

print([AliasLookup.of(resolve(path), options, cache).key.digest for options in choices])
"""
STORED = """
import json
import sys
from dataclasses import replace
from trtcache.bundle.file_alias import FileLookup, map_cpu_program
from trtcache.bundle.load_program import TorchNeeded
from trtcache.digests import CacheKey

def follow(change):
    lookup = FileLookup.of(choices[0], cache)
    alias = lookup.alias_key_of(map_cpu_program(path))
    parts = {name: part for name, part in alias.document["parts"].items() if name != "file"}
    document = {"key": {"format": 1, "kind": "aot_inductor", "parts": parts}, "device": "cpu", **change(parts)}
    cache.store.remove(alias.digest)
    assert lookup.find_key(replace(alias, digest="0" * 64)) is None
    cache.keep(alias, {"alias.json": json.dumps(document).encode()}, build_s=1.0)
    try:
        return lookup.find_key(alias) == CacheKey.of_document(document["key"])
    except TorchNeeded as error:
        return str(error)

assert follow(lambda parts: {}) is True
other = {"format": 1, "kind": "aot_inductor"}
assert "other parts" in follow(lambda parts: {"key": {**other, "parts": {**parts, "target": None}}})
assert "other parts" in follow(lambda parts: {"key": {**other, "kind": "tensorrt", "parts": parts}})
assert "other parts" in follow(lambda parts: {"device": "cuda:0"})
assert "cannot be used" in follow(lambda parts: {"key": None})
assert "custom operators" in follow(lambda parts: {"operators": {"mine.op": ["1.0"]}})
assert "torch" not in sys.modules
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of a program."""
    torch.export.save(torch.export.export(Affine(), (torch.randn(3, 4),)), tmp_path / "affine.pt2")
    return tmp_path / "affine.pt2"


def test_keys_of_aliases_are_those_of_a_process_with_torch(
    path: Path, tmp_path: Path, run_fresh_python: RunPython
) -> None:
    """For each combination of backend, settings and target; and the processes that make them have not imported it."""
    options = OPTIONS.format(path=path, folder=tmp_path)
    without, with_torch = run_fresh_python(options + WITHOUT), run_fresh_python(options + WITH)
    assert without.returncode == with_torch.returncode == 0, without.stderr + with_torch.stderr
    assert without.stdout == with_torch.stdout
    assert len(set(without.stdout.strip("[]\n").split(", "))) == 6  # auto is aot_inductor


def test_an_alias_is_followed_as_far_as_torch_is_not_needed(
    path: Path, tmp_path: Path, run_fresh_python: RunPython
) -> None:
    """One for another target, backend or device, one that is malformed, and one of custom operators need torch."""
    done = run_fresh_python(OPTIONS.format(path=path, folder=tmp_path) + STORED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE may change its state"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "no error"),
    ],
)
def test_variables_that_may_change_torchs_state_need_it(
    variable: str, message: str, path: Path, tmp_path: Path, run_fresh_python: RunPython
) -> None:
    """Those of Inductor are in the key."""
    code = """
from trtcache.bundle.file_alias import FileLookup
from trtcache.bundle.load_program import TorchNeeded
try:
    FileLookup.of(choices[0], cache)
    print("no error")
except TorchNeeded as error:
    print(error)
"""
    done = run_fresh_python(OPTIONS.format(path=path, folder=tmp_path) + code, **{variable: "1"})
    assert done.stdout == f"{message}\n", done.stderr


def test_wrong_options_are_errors_and_a_divided_program_needs_torch(
    path: Path, tmp_path: Path, run_fresh_python: RunPython
) -> None:
    """As in a process with torch."""
    code = """
from trtcache.bundle.file_alias import FileLookup

for backend, settings, target in (
    ("aot_inductor", {"torch_executed_ops": ["aten.relu"]}, None),
    ("none", {}, None),
    ("aot_inductor", {"tensorrt": {"workspace_mib": 1}}, None),
    ("aot_inductor", {}, "x86-64-v9"),
):
    try:
        FileLookup.of(CompileOptions.of(backend, settings, target), cache)
    except Exception as error:
        print(type(error).__name__)
"""
    done = run_fresh_python(OPTIONS.format(path=path, folder=tmp_path) + code)
    assert done.stdout.split() == ["TorchNeeded", "BackendUnavailableError", "SettingsError", "SettingsError"], done


def test_a_process_that_has_imported_torch_uses_it(tmp_path: Path) -> None:
    """Its state may be another one."""
    with pytest.raises(TorchNeeded, match="may have changed its state"):
        FileLookup.of(CompileOptions(), Cache(tmp_path / "cache"))


def test_files_of_another_form_need_torch(path: Path, tmp_path: Path) -> None:
    """It says what is wrong with them."""
    assert map_cpu_program(path).is_program
    (tmp_path / "text.pt2").write_text("text")
    torch.save({"x": torch.ones(2)}, tmp_path / "weights.pt2")
    for name in ("text.pt2", "weights.pt2", "none.pt2"):
        with pytest.raises(TorchNeeded):
            map_cpu_program(tmp_path / name)
