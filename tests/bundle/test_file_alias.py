"""``trtcache.compile`` of a ``.pt2`` file without torch: which files hit, and which import torch."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import trtcache
from tests.bundle.plain_models import FAST
from trtcache.bundle.file_alias import MappedPt2File, file_alias_key, store_alias, why_no_alias
from trtcache.bundle.load_program import TorchNeeded
from trtcache.frontends.pt2 import Pt2Source
from trtcache.frontends.source import CompileOptions
from trtcache.settings import Settings
from trtcache.store.catalog import counters
from trtcache.store.disk import DiskStore
from trtcache.target import resolve_target

if TYPE_CHECKING:
    from tests.conftest import RunPython

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
OPTIONS = CompileOptions(settings=Settings.of(FAST))

HIT = """
import sys
import numpy as np
import trtcache

folder, name, cache = sys.argv[1:]
settings = {"inductor": {"cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": True}}
program = trtcache.compile(f"{folder}/{name}.pt2", settings=settings, cache=cache)
made = program(np.load(f"{folder}/x.npy"))
assert type(program).__name__ == "Program" and program.report.torch == "not used", program.report
assert not [one for one in ("torch", "sympy", "trtcache.api") if one in sys.modules]
assert (program.report.route, program.report.partitions[0].outcome) == ("alias", "hit"), program.report
np.save(f"{folder}/{name}.npy", made)
"""


class Model(nn.Module):
    """A linear layer and a number, which is a part of the program."""

    def __init__(self, number: float = 2.0) -> None:
        super().__init__()
        self.lin, self.number = nn.Linear(4, 4), number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x)) * self.number


@pytest.fixture(scope="module")
def folder(engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files: of a compiled program, of it with other weights, and of a program that is not compiled."""
    made = tmp_path_factory.mktemp("files")
    x = torch.randn(3, 4)
    np.save(made / "x.npy", x.numpy())
    for name, number in (("known", 2.0), ("retrained", 2.0), ("other", 3.0)):
        torch.export.save(torch.export.export(Model(number), (x,)), made / f"{name}.pt2")
    trtcache.compile(made / "known.pt2", settings=FAST, cache=engines)
    return made


def run(folder: Path, name: str, cache: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Compile a file in a process that has not imported torch."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HIT, str(folder), name, str(cache)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=os.environ | environ,
        check=False,
    )


@pytest.mark.parametrize("name", ["known", "retrained"])
def test_a_known_program_hits_with_the_weights_of_its_file(folder: Path, engines: Path, name: str) -> None:
    """Bit for bit the module's answer, whatever the weights are."""
    done = run(folder, name, engines, TRTCACHE_NO_TORCH="1")
    assert done.returncode == 0, done.stderr
    module = trtcache.compile(folder / f"{name}.pt2", settings=FAST, cache=engines)
    assert isinstance(module, trtcache.CompiledModule)
    assert (
        np.load(folder / f"{name}.npy").tobytes()
        == module(torch.from_numpy(np.load(folder / "x.npy"))).numpy().tobytes()
    )


FIRST = """
import sys
import numpy as np
import trtcache

file, cache, x = sys.argv[1:]
settings = {"inductor": {"cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": True}}
program = trtcache.compile(file, settings=settings, cache=cache)
print(type(program).__name__, type(program(np.load(x))).__name__, program.report.partitions[0].outcome)
"""


def test_a_first_compile_returns_what_a_hit_does(folder: Path, tmp_path: Path) -> None:
    """A process that has not imported torch gets a program that takes arrays, whether the engine was built or not."""
    made = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIRST, folder / "known.pt2", tmp_path / "cache", folder / "x.npy"],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert made == ["Program ndarray built\n", "Program ndarray hit\n"]
    tallies = counters(DiskStore.open(tmp_path / "cache"))
    assert sum(tally.count for (_, event, _, _), tally in tallies.items() if event == "hit") == 1


def test_another_program_or_environment_needs_torch(folder: Path, engines: Path, tmp_path: Path) -> None:
    """That is an error with TRTCACHE_NO_TORCH=1: another number in it, a variable of Inductor, another cache."""
    for name, cache, environ in (
        ("other", engines, {}),
        ("known", engines, {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}),
        ("known", tmp_path / "empty", {}),
        ("missing", engines, {}),
    ):
        refused = run(folder, name, cache, TRTCACHE_NO_TORCH="1", **environ)
        assert refused.returncode == 1
        assert "TorchForbiddenError: TRTCACHE_NO_TORCH=1 and" in refused.stderr


def test_damaged_weights_are_found(folder: Path, engines: Path, tmp_path: Path) -> None:
    """One byte of a weight: an error, and no answer."""
    data = bytearray((folder / "known.pt2").read_bytes())
    with zipfile.ZipFile(folder / "known.pt2") as archive:
        (info,) = (one for one in archive.infolist() if one.filename.endswith("data/weights/weight_0"))
        content = archive.read(info)
    data[data.index(content)] ^= 1
    np.save(tmp_path / "x.npy", np.load(folder / "x.npy"))
    (tmp_path / "known.pt2").write_bytes(data)
    done = run(tmp_path, "known", engines)
    assert done.returncode == 1
    assert "ModelFileError" in done.stderr
    assert not (tmp_path / "known.npy").exists()


def test_the_digest_of_a_file_is_the_same_with_torch(folder: Path, tmp_path: Path) -> None:
    """Equal for files that differ in weights only."""
    digests = []
    for name in ("known", "retrained", "other"):
        with Pt2Source(folder / f"{name}.pt2") as file:
            digests.append(file.digest)
        assert MappedPt2File(folder / f"{name}.pt2").digest == digests[-1]
    assert digests[0] == digests[1] != digests[2]
    (tmp_path / "text.pt2").write_text("text")
    with pytest.raises(TorchNeeded):
        MappedPt2File(tmp_path / "text.pt2")


def test_the_state_of_a_new_process_is_the_known_one(run_fresh_python: RunPython) -> None:
    """What a process without torch claims is what torch begins with."""
    done = run_fresh_python(
        """
        from trtcache.backends.aot_inductor.backend import ambient
        from trtcache.backends.host import INITIAL_AMBIENT
        from trtcache.keys.alias_key import INITIAL_STATE
        from trtcache.digests import canonical
        from trtcache.keys.key import process_state

        found = {name: value for name, value in ambient().items() if name != "environment"}
        assert canonical(found) == canonical(INITIAL_AMBIENT), found
        assert canonical(process_state()) == canonical(INITIAL_STATE), process_state()
        """
    )
    assert done.returncode == 0, done.stderr


def test_another_state_of_torch_stores_no_alias(folder: Path, engines: Path, tmp_path: Path) -> None:
    """A process with another default dtype has another program, which a process without torch must not find."""
    module = trtcache.compile(folder / "known.pt2", settings=FAST, cache=engines)
    cache = trtcache.Cache(tmp_path / "cache")
    with Pt2Source(folder / "known.pt2") as source:
        key = file_alias_key(source.digest, OPTIONS.settings, resolve_target(None, device="cpu"))
        torch.set_default_dtype(torch.float64)
        try:
            store_alias(source, module, OPTIONS, cache)
        finally:
            torch.set_default_dtype(torch.float32)
        assert cache.peek(key, counted=False) is None
        store_alias(source, module, OPTIONS, cache)
        assert cache.peek(key, counted=False) is not None


def test_options_that_need_torch_are_named() -> None:
    """Parts in torch, another backend and thread counts."""
    options: list[tuple[dict[str, Any], str]] = [
        ({"settings": Settings.of({"torch_executed_ops": ["aten.mm"]})}, "parts"),
        ({"backend": "tensorrt"}, "backend tensorrt"),
        ({"settings": Settings.of({"threads": {"intra": 2}})}, "threads"),
    ]
    assert why_no_alias(CompileOptions()) == ""
    for given, words in options:
        assert words in why_no_alias(CompileOptions(**given))
