"""The two flavours: what is said where one is missing, and of builds that fail."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from tests.backends.tensorrt.plans import compiled, stored
from trtcache.backends import registry
from trtcache.backends.tensorrt.build import failure
from trtcache.backends.tensorrt.callbacks import ErrorCollector
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX, plan_target
from trtcache.backends.tensorrt.preflight import diagnose
from trtcache.errors import BackendUnavailableError, BuildError, BuildMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOWHERE = replace(TENSORRT, name="tensorrt_that_is_not_there")


def test_a_flavour_that_is_not_installed_says_how_to_install_it() -> None:
    """Asked for its version or its module, it names the extra; asked whether it is there, it says no."""
    assert not NOWHERE.installed
    with pytest.raises(BackendUnavailableError, match=r"pip install 'trtcache\[tensorrt\]'"):
        _ = NOWHERE.version
    with pytest.raises(BackendUnavailableError, match=r"pip install 'trtcache\[tensorrt\]'"):
        NOWHERE.load()


def test_libraries_that_do_not_load_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose import fails is there and cannot be used, and the reason is in the error."""
    (tmp_path / "tensorrt_broken.py").write_text("raise OSError('libnvinfer.so.10: cannot open')")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = replace(TENSORRT, name="tensorrt_broken")
    assert broken.installed
    with pytest.raises(BackendUnavailableError, match="cannot be loaded: libnvinfer"):
        broken.load()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets distributions have other versions, or none."""
    real = importlib.metadata.version

    def install(**versions: str | None) -> None:
        def version(name: str) -> str:
            found = versions.get(name, real(name) if name not in versions else None)
            if found is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr(importlib.metadata, "version", version)

    return install


@pytest.mark.parametrize(
    "package", ["onnx", "onnxscript", "onnx_ir", "numpy", "ml_dtypes", "tensorrt_rtx_cu13_bindings"]
)
def test_every_version_that_a_plan_depends_on_is_in_its_key(package: str, installed: Callable[..., None]) -> None:
    """Of TensorRT, and of all that computes constants while a program is exported."""
    backend = registry.find("tensorrt_rtx", "cpu")
    before = backend.versions("cpu")
    installed(**{package: "0.1"})
    changed = backend.versions("cpu")
    assert [name for name in before if before[name] != changed[name]] == [package.removesuffix("_cu13_bindings")]


def test_plans_of_two_cuda_versions_have_two_keys(installed: Callable[..., None]) -> None:
    """One version of TensorRT is there for both, and a driver for CUDA 12 cannot run a plan of the other."""
    backend = registry.find("tensorrt_rtx", "cpu")
    version = TENSORRT_RTX.version
    cuda = []
    for major, other in ((12, 13), (13, 12)):
        names = {f"tensorrt_rtx_cu{major}_bindings": version, f"tensorrt_rtx_cu{other}_bindings": None}
        installed(**names)
        cuda.append(backend.versions("cpu"))
    assert [one["cuda"] for one in cuda] == [12, 13]
    assert {**cuda[0], "cuda": 13} == cuda[1]


def test_a_module_of_another_version_than_its_distribution_is_refused(installed: Callable[..., None]) -> None:
    """Its plans would be stored under the keys of another version; a suffix of the packaging does not count."""
    version = TENSORRT_RTX.load().__version__
    installed(tensorrt_rtx_cu13_bindings=f"{version}.post1", tensorrt_rtx_cu12_bindings=None)
    assert TENSORRT_RTX.load()
    installed(tensorrt_rtx_cu13_bindings="1.6.1.90", tensorrt_rtx_cu12_bindings=None)
    with pytest.raises(BackendUnavailableError, match=rf"is version {version}, and .* as version 1\.6\.1\.90"):
        TENSORRT_RTX.load()


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_package_of_the_exporter_that_is_not_installed_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is exported, with the extra that installs it; doctor says so too."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(BackendUnavailableError, match=rf"{package} is not installed.*'trtcache\[tensorrt-rtx\]'"):
        trtcache.compile(nn.Linear(4, 4), (torch.ones(2, 4),), backend="tensorrt_rtx", target="sm_89")
    (_, can_build) = diagnose(TENSORRT_RTX)
    assert can_build.status == "missing"


@pytest.mark.skipif(TENSORRT.installed, reason="TensorRT is installed")
def test_a_backend_asked_for_by_name_is_not_replaced() -> None:
    """Without TensorRT, ``tensorrt`` is an error, not TensorRT-RTX."""
    with pytest.raises(BackendUnavailableError, match="TensorRT is not installed"):
        registry.find("tensorrt", "cpu")


def test_a_model_on_another_device_is_refused() -> None:
    """Plans are built from models on the CPU or on CUDA."""
    with pytest.raises(BackendUnavailableError, match="not on abacus"):
        registry.find("tensorrt_rtx", "abacus")


@pytest.mark.parametrize(
    ("line", "kind"), [("Cuda Runtime (out of memory)", BuildMemoryError), ("no tactic was found", BuildError)]
)
def test_a_failure_is_told_by_what_tensorrt_said(line: str, kind: type[BuildError]) -> None:
    """Out of memory is an error of its own; all else has TensorRT's words and the target."""
    errors = ErrorCollector()
    errors.add(line)
    made = failure(TENSORRT_RTX, plan_target("sm_89", TENSORRT_RTX, None), errors)
    assert type(made) is kind
    assert line in str(made)


class Returning(nn.Module):
    """A model that returns an input, a value twice, a weight and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> tuple[object, ...]:
        y = x * self.scale
        return x, y, y, self.scale, 7


def test_every_result_is_an_output_of_the_plan(engines: Path) -> None:
    """One output for each tensor that is returned, in order; an input that nothing uses is left to TensorRT."""
    facts, _ = stored(compiled(Returning(), (torch.ones(2, 3), torch.ones(1)), engines), engines)
    assert facts["outputs"] == ["out0", "out1", "out2", "out3"]
    assert facts["inputs"][0] == "in0"
