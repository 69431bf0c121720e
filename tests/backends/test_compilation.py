"""The quick compilation of packages gives the packages that Inductor's own gives, and uses its probes if it has to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from tests import compile_once
from tests.effort import TORTURE, tries

if TYPE_CHECKING:
    from pathlib import Path

# Builds a package in a new process, with an own folder for all caches, and prints what was built and how.
_BUILD = """
import hashlib, json, sys, zipfile
from contextlib import contextmanager
import torch
from torch._inductor import cpu_vec_isa
import trtcache
from trtcache.backends.aot_inductor import build, compilation

probes, load = [], cpu_vec_isa.VecISA.check_build

def record(isa, code):
    probes.append(str(isa))
    return load(isa, code)

cpu_vec_isa.VecISA.check_build = record
SETUP
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).eval()
x = torch.randn(4, 8)
with torch.no_grad():
    module = trtcache.compile(model, (x,))
    close = bool(torch.allclose(module(x), model(x), atol=1e-5))
partition = module.report.partitions[0]
entry = trtcache.Cache().get(partition.key)
entry.write("engine", "engine.pt2")
files = zipfile.ZipFile("engine.pt2")
libraries = {name: files.read(name) for name in files.namelist() if name.endswith(".so")}
print(json.dumps({
    "key": partition.key.digest, "close": close, "probes": probes,
    "libraries": [hashlib.sha256(content).hexdigest() for content in libraries.values()],
    "steps": partition.build_steps, "report": str(module.report),
    "forgotten": cpu_vec_isa.valid_vec_isa_list.cache_info().currsize == 0,
    "extensions": [isa._is_avx512_bf16_supported for isa in cpu_vec_isa.supported_vec_isa_list[:3]],
}))
"""
# What trtcache did before: Inductor's own compilation.
_PLAIN = """
@contextmanager
def plain(options, *, assumes=True):
    yield compilation.PackageCompilation(assumes=False, makes_headers=True, pool=None)

build.quick_compilation, build.header_options = plain, lambda: {compilation.HEADERS: MAKES_HEADERS}
"""


def _run(
    folder: Path, setup: str = "", environment: dict[str, str] | None = None, script: str = _BUILD
) -> dict[str, Any]:
    """Run a script in a new process with an empty home in a folder, and return what it printed.

    A library has the length of the path of its sources in it, so builds are compared in one folder.
    """
    home = folder / "home"
    home.mkdir()
    own = {"HOME": ".", "TMPDIR": ".", "TRTCACHE_DIR": "cache", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    places = {name: str(home / place) for name, place in own.items()}
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": compile_once.afresh(os.environ["PATH"])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script).replace("SETUP", textwrap.dedent(setup))],
        cwd=home,
        env={**os.environ, **places, **paths, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    headers = {path.name: path.stat().st_size for path in home.rglob("*.gch")}
    shutil.rmtree(home)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**answer, "headers": headers, "log": done.stderr}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all builds."""
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict[str, Any]:
    """What Inductor's own compilation builds; in ``make torture`` with precompiled headers, which take 16 s."""
    return _run(folder, _PLAIN.replace("MAKES_HEADERS", str(tries(False, True))))


@pytest.mark.torture
def test_a_quick_build_gives_the_same_package(folder: Path, plain: dict[str, Any]) -> None:
    """The same key and library, byte for byte, without a probe and without a precompiled header."""
    quick = _run(folder, environment={"TORCHINDUCTOR_COMPILE_THREADS": "2"})
    assert quick["close"]
    assert plain["close"]
    assert (quick["key"], quick["libraries"]) == (plain["key"], plain["libraries"])
    assert plain["probes"], "Inductor probes no instruction sets on this machine"
    assert len(plain["headers"]) == tries(0, 2)
    assert quick["probes"] == []
    assert quick["headers"] == {}
    assert list(quick["steps"]) == ["import", "probe", "codegen", "compile", "link"]
    assert "build: import" in quick["report"]
    assert quick["forgotten"]
    assert not any(quick["extensions"])


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="builds for a minute")
def test_precompiled_headers_are_made_after_some_builds(folder: Path, plain: dict[str, Any]) -> None:
    """A process that has built several packages makes both; the package is the same."""
    many = _run(folder, "compilation._builds = compilation._MANY_BUILDS")
    assert len(many["headers"]) == 2
    assert many["libraries"] == plain["libraries"]


def test_a_compiler_that_cannot_do_what_was_assumed_is_probed(folder: Path, plain: dict[str, Any]) -> None:
    """Where code for the processor's instructions does not compile, the package is built for fewer, as by Inductor."""
    compiler = folder / "g++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *CPU_CAPABILITY_AVX*) exit 1;; esac\nexec /usr/bin/g++ "$@"\n')
    compiler.chmod(0o755)
    fewer = _run(folder, environment={"CXX": str(compiler)})
    assert fewer["close"]
    assert fewer["key"] == plain["key"]
    assert fewer["libraries"] != plain["libraries"]
    assert "is compiled again: for INVALID_VEC_ISA" in fewer["log"]


# Compares the choices by assumption with Inductor's, also for processors that this machine does not have: the compiler
# builds their code everywhere.
_CHOOSE = """
import json, os
import torch
from torch._inductor import cpu_vec_isa
from trtcache.backends.aot_inductor.build import _LEVEL_OPTIONS, known_options
from trtcache.backends.aot_inductor.compilation import _forget_probes, choose_instructions, quick_compilation

FLAGS = ("avx2", "avx512", "vnni", "avx512_bf16", "amx_tile", "amx_fp16")
found = []
for level in json.loads(os.environ["PROCESSORS"]):
    for place, flag in enumerate(FLAGS):
        setattr(torch.cpu, f"_is_{flag}_supported", lambda is_there=place < level: is_there)
    torch.cpu._init_amx = lambda: True
    answers = []
    for assumes in (True, False):
        _forget_probes()
        for isa in cpu_vec_isa.supported_vec_isa_list:
            isa.__dict__.pop("_is_avx512_bf16_supported", None)
            isa.__dict__.pop("_is_amx_fp16_supported", None)
        with quick_compilation({}, assumes=assumes):
            levels = [options for options in _LEVEL_OPTIONS.values() if options.keys() <= set(known_options())]
            answers.append([choose_instructions(options) for options in levels])
    found.append(answers)
print(json.dumps({"found": found}))
"""


@pytest.mark.torture
@pytest.mark.parametrize("processors", [[0, 1], *([[2, 3, 6]] if TORTURE else [])], ids=str)
def test_the_instructions_are_those_that_inductor_chooses(folder: Path, processors: list[int]) -> None:
    """For each target level, on processors from none of the sets to AMX, the assumption is the answer of the probes."""
    found = _run(folder, environment={"PROCESSORS": json.dumps(processors)}, script=_CHOOSE)["found"]
    for assumed, probed in found:
        assert assumed == probed
    assert len({json.dumps(assumed) for assumed, _ in found}) == len(processors)
