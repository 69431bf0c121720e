"""Every name of TensorRT that the backend uses is there, in each version whose bindings were looked at."""

from __future__ import annotations

import ast
import importlib.metadata
import json
from pathlib import Path

import pytest

import trtcache.backends.tensorrt as package
from tests.backends.tensorrt.bindings import DATA
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX, capability_words
from trtcache.backends.tensorrt.preflight import ELSEWHERE, UNFIT
from trtcache.config.backend_settings import TILINGS, VERBOSITIES

NAMES = json.loads(DATA.read_text())

OBJECTS = {
    "builder": "Builder",
    "definition": "INetworkDefinition",
    "parser": "OnnxParser",
    "config": "IBuilderConfig",
    "profile": "IOptimizationProfile",
    "refused": "ParserError",
    "severity": "ILogger",
    "flags": "BuilderFlag",
    "kinds": "DataType",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "refitter": "Refitter",
    "prototype": "Weights",
    "locations": "TensorLocation",
    "timings": "ITimingCache",
    "port": "ITensor",
    "execution": "IRuntimeConfig",
    "kernels": "IRuntimeCache",
    "_kernels": "IRuntimeCache",
    "_engine": "ICudaEngine",
}
"""What the sources call an object of TensorRT's, whatever it hangs on -> its class."""

FLAVOURS = {
    "ComputeCapability": "tensorrt_rtx",
    "IBuilderConfig.num_compute_capabilities": "tensorrt_rtx",
    "IBuilderConfig.set_compute_capability": "tensorrt_rtx",
    "EngineValidity": "tensorrt_rtx",
    "EngineValidity.INVALID": "tensorrt_rtx",
    "EngineInvalidityDiagnostics": "tensorrt_rtx",
    "Runtime.get_engine_validity": "tensorrt_rtx",
    "IRuntimeCache.deserialize": "tensorrt_rtx",
    "IRuntimeCache.serialize": "tensorrt_rtx",
    "IRuntimeConfig.create_runtime_cache": "tensorrt_rtx",
    "IRuntimeConfig.set_runtime_cache": "tensorrt_rtx",
}
"""Names that are used for one flavour only."""


def used() -> dict[str, str]:
    """Return each name of TensorRT's in the sources, ``Class.name`` or ``name``, and where it stands."""
    found: dict[str, str] = {}
    for file in sorted(Path(str(package.__file__)).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and not node.attr.startswith("__") and (name := _name(node)):
                found[name] = f"{file.name}:{node.lineno}"
    return found


def _name(node: ast.Attribute) -> str | None:
    owner = node.value
    last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    if last == "trt":
        return node.attr
    if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id == "trt":
        return f"{owner.attr}.{node.attr}"
    return f"{OBJECTS[last]}.{node.attr}" if last in OBJECTS else None


def versions_of(name: str) -> list[str]:
    """Return the versions that have a name; a class's own is the module's."""
    owner, _, attribute = name.rpartition(".")
    if attribute in NAMES["everywhere"].get(owner, ()):
        return list(NAMES["versions"])
    return list(NAMES["some"].get(name, ()))


def test_the_sources_name_what_a_build_needs() -> None:
    """The names are found at all: a few that no build goes without."""
    assert {"Runtime.deserialize_cuda_engine", "IExecutionContext.execute_async_v3", "DataType.BF16"} <= set(used())
    assert {"Builder", "IBuilderConfig.set_flag", "OnnxParser.load_initializer", "BuilderFlag.TF32"} <= set(used())
    assert len(used()) > 40


@pytest.mark.parametrize("name", sorted(used()))
def test_a_name_is_in_every_version(name: str) -> None:
    """A name that a version lacks is found here, before a user of that version finds it."""
    flavour = FLAVOURS.get(name, "")
    wanted = [version for version in NAMES["versions"] if version.startswith(flavour)]
    assert set(wanted) <= set(versions_of(name)), f"{name} in {used()[name]}"


@pytest.mark.parametrize(
    "name",
    [
        *(f"TilingOptimizationLevel.{word.upper()}" for word in TILINGS),
        *(f"ProfilingVerbosity.{word.upper()}" for word in VERBOSITIES),
    ],
)
def test_words_of_settings_are_members_in_every_version(name: str) -> None:
    """What a caller may write for a setting is TensorRT's own name for it."""
    assert versions_of(name) == NAMES["versions"]


def test_capabilities_are_members_in_every_version_of_rtx() -> None:
    """Each capability that can be named is known from 1.4 on, but sm_121 from 1.5: 1.4 is told in words."""
    wanted = [version for version in NAMES["versions"] if version.startswith("tensorrt_rtx")]
    for capability in TENSORRT_RTX.capabilities:
        name = f"ComputeCapability.{capability_words(capability).replace('_', '').upper()}"
        assert versions_of(name) == wanted[capability == "12.1" :]


@pytest.mark.parametrize("name", [*UNFIT, *ELSEWHERE])
def test_reasons_are_members_in_every_version_of_rtx(name: str) -> None:
    """What TensorRT-RTX can say of a plan is one of the bits that are looked at, and all of them are."""
    wanted = [version for version in NAMES["versions"] if version.startswith("tensorrt_rtx")]
    assert versions_of(f"EngineInvalidityDiagnostics.{name}") == wanted


def test_a_name_that_nobody_has_is_in_no_version() -> None:
    """The data would show a name that was made up."""
    assert versions_of("Builder.build_plan") == []
    assert versions_of("BuilderFlag.REFITTING") == []


def test_the_data_is_of_the_versions_that_are_supported() -> None:
    """Both flavours, oldest to newest; the installed one is among them and agrees."""
    assert [version.split()[1].rsplit(".", 2)[0] for version in NAMES["versions"]] == [
        *("1.4", "1.5", "1.6", "1.7"),
        *("10.15", "11.4"),
    ]
    trt = TENSORRT_RTX.load()
    installed = f"tensorrt_rtx {importlib.metadata.version('tensorrt_rtx')}"
    if installed in NAMES["versions"]:
        assert [name for name in NAMES["everywhere"]["Builder"] if not hasattr(trt.Builder, name)] == []
