"""Backends of other distributions: what is wrong with one is an error or a miss, and never a wrong engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

import trtcache
from tests.comparing import difference
from tests.direct.stored import Stored, install_stored
from tests.documents import ROOT
from tests.models import Affine
from trtcache.backends import registry
from trtcache.backends.protocol import Artifact, Backend, Engine
from trtcache.errors import (
    BackendUnavailableError,
    BuildError,
    FixedWeightsError,
    IncompatibleEngineError,
    NoFittingEngineError,
)
from trtcache.testing.interpreter import Interpretation, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

X = torch.randn(3, 4)


def error_of(name: str) -> str:
    """Return the error of a backend that cannot be used."""
    with pytest.raises(BackendUnavailableError) as caught:
        registry.find(name, "cpu")
    return str(caught.value)


class Plugin(Interpreter):
    """A backend as another distribution has it."""

    name: ClassVar[str] = "plugin"
    version: ClassVar[int | str] = "1.0"


def test_what_is_missing_is_named(offer: Callable[..., str]) -> None:
    """A class without a required method is an error that names it, and its place."""

    class Half(Backend):
        name: ClassVar[str] = "half"

        def unavailable(self, device: str) -> str | None:
            return None

    message = error_of(offer(Half))
    assert "test_other_backends" in message
    for missing in ("ambient", "build", "load", "target", "toolchain"):
        assert f"method {missing} is missing" in message
    assert "attribute version is missing" in message
    assert "attribute capabilities is missing" in message
    assert "unavailable" not in message


def test_a_class_that_only_looks_like_a_backend_is_refused(offer: Callable[..., str]) -> None:
    """A class with the right methods and another base has no defaults for the others."""
    duck = type("Duck", (), {name: value for name, value in vars(Interpreter).items() if not name.startswith("__")})
    assert "is not a class that derives from trtcache's Backend" in error_of(offer(duck))
    assert "is not a class that derives from trtcache's Backend" in error_of(offer(Interpreter(), "instance"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("frozen", "frozen_slots"), ("why_nots", "why_not"), ("Check", "check"), ("load_entries", "load_entry")],
)
def test_a_misnamed_method_is_an_error(offer: Callable[..., str], wrong: str, right: str) -> None:
    """An optional method with a wrong name would never be called, and its facts would be in no key."""
    backend = type("Misnamed", (Plugin,), {wrong: lambda self: None})
    assert f"{wrong} has to be renamed: to {right}" in error_of(offer(backend))


def test_wrong_attributes_are_named(offer: Callable[..., str]) -> None:
    """The name is that of the entry point, the version is not empty, and capabilities have their type."""
    assert "attribute name is 'plugin', and its entry point is 'other'" in error_of(offer(Plugin, "other"))
    assert "attribute version" in error_of(offer(type("Empty", (Plugin,), {"version": ""})))
    assert "attribute version" in error_of(offer(type("None", (Plugin,), {"version": None})))
    assert "attribute capabilities" in error_of(offer(type("Dict", (Plugin,), {"capabilities": {}})))


def test_exceptions_of_a_backend_name_it(offer: Callable[..., str]) -> None:
    """A constructor, and ``unavailable``, may fail with anything."""

    def fail(self: object, *_: object) -> None:
        raise KeyError("driver")

    assert error_of(offer(type("Init", (Plugin,), {"__init__": fail}))) == (
        "backend 'plugin': it fails with KeyError: 'driver'"
    )
    assert "KeyError: 'driver'" in error_of(offer(type("Unavailable", (Plugin,), {"unavailable": fail})))


def test_only_declared_devices_are_used(offer: Callable[..., str]) -> None:
    """``Capabilities.devices`` counts, whatever ``unavailable`` returns."""
    cuda = replace(Plugin.capabilities, devices=frozenset({"cuda", "xpu"}))
    message = error_of(offer(type("Cuda", (Plugin,), {"capabilities": cuda})))
    assert message == "backend 'plugin': its engines run on cuda and xpu, not on cpu"


def test_the_version_is_in_the_key(offer: Callable[..., str], tmp_path: Path) -> None:
    """Another version of a backend is another key, and no alias leads to the older one."""
    keys, outcomes = [], []
    for version in ("1.0", "1.0", "1.1", 2):
        offer(type("Versioned", (Plugin,), {"version": version}))
        report = trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache").report
        keys.append(str(report.partitions[0].key))
        outcomes.append(report.partitions[0].outcome)
    assert outcomes == ["built", "hit", "built", "built"]
    assert len(set(keys)) == 3


_PLUGIN = """
from typing import ClassVar
from tests.comparing import difference
from tests.direct.stored import Stored

class Edited(Stored):
    name: ClassVar[str] = "edited"
    version: ClassVar[int] = 1

    def why_not(self, node):
        return {why!r} if "mul" in str(node.target) else None
"""
_RUN = """
import json, torch, trtcache
from tests.models import Affine
torch.manual_seed(0)
module = trtcache.compile(Affine(), (torch.ones(3, 4),), backend="edited")
print(json.dumps([[part.outcome for part in module.report.partitions], len(module.report.left)]))
"""


def test_an_edited_backend_partitions_again(tmp_path: Path, run_python: RunPython) -> None:
    """A changed ``why_not`` without another version is no hit on the old partitions, in another process."""
    site = install_stored(tmp_path / "site")
    info = site / "edited-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: edited\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trtcache.backends]\nedited = edited_backend:Edited\n")
    results = []
    for why in (None, None, "not here", "not here"):
        (site / "edited_backend.py").write_text(_PLUGIN.format(why=why))
        environ = {"PYTHONPATH": f"{site}:{ROOT}", "TRTCACHE_DIR": str(tmp_path / "cache")}
        results.append(json.loads(run_python(_RUN, **environ).stdout.splitlines()[-1]))
    assert results[0] == [["built"], 0]
    assert results[1] == [["hit"], 0]
    assert results[2][1] > 0, "the multiplication has to stay in torch"
    assert results[3][1] == results[2][1]


def test_an_exported_program_needs_the_same_versions(offer: Callable[..., str], tmp_path: Path) -> None:
    """A program does not run with another version of the backend, or of what it is made of."""
    make = type("Exported", (Stored,), {"name": "plugin", "version": "1.0"})
    offer(make)
    module = trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")
    trtcache.export(module, tmp_path / "program.pt2")
    expected = module(X)
    assert all(map(torch.equal, trtcache.load(tmp_path / "program.pt2", trust="local-file")(X), expected))
    offer(type("Newer", (make,), {"version": "1.1"}))
    with pytest.raises(NoFittingEngineError, match=r"built with version plugin 1.0, and this is version plugin 1.1"):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")
    facts = {"torch": torch.__version__, "runtime": "7"}
    offer(type("Runtime", (make,), {"toolchain": lambda self, device: facts}))
    with pytest.raises(NoFittingEngineError, match="built with runtime None, and this is runtime 7"):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")


def _raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_an_exception_of_a_build_is_a_build_error(offer: Callable[..., str], tmp_path: Path) -> None:
    """It names the backend, and ``on_build_failure`` applies to it."""
    offer(type("Fails", (Plugin,), {"build": _raises(ZeroDivisionError("tactic"))}))
    with pytest.raises(BuildError, match="building plugin failed: ZeroDivisionError: tactic"):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")
    module = trtcache.compile(
        Affine(), (X,), backend="plugin", cache=tmp_path / "cache", settings={"on_build_failure": "torch"}
    )
    assert difference(module(X), Affine()(X)) is None
    assert any("ZeroDivisionError" in str(left) for left in module.report.left)


@pytest.mark.parametrize("hook", ["target", "toolchain", "ambient", "check", "why_not", "frozen_slots"])
def test_an_exception_of_a_hook_names_it(offer: Callable[..., str], tmp_path: Path, hook: str) -> None:
    """A package that ``toolchain`` looks up and that is missing is an error of the backend, not of the model."""
    offer(type("Fails", (Plugin,), {hook: _raises(KeyError("onnx"))}))
    with pytest.raises(BackendUnavailableError, match=f"backend 'plugin': its {hook} fails with KeyError: 'onnx'"):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")


def test_a_set_that_is_text_is_an_error(offer: Callable[..., str]) -> None:
    """``devices="cpu"`` would be three devices."""
    text = replace(Plugin.capabilities, devices="cpu")  # type: ignore[arg-type]
    message = error_of(offer(type("Text", (Plugin,), {"capabilities": text})))
    assert "capabilities.devices has to be a frozenset of text, and is 'cpu'" in message


class Nothing(Engine):
    """An engine without any method of its own."""


class Misspelt(Interpretation):
    """An engine whose concurrent calls would run one after the other."""

    def parallell(self, calls: int) -> Misspelt:
        """Return this engine."""
        return self


@pytest.mark.parametrize(
    ("engine", "refit", "message"),
    [
        (Nothing, True, "Nothing, which load returned: method run is missing; method refit is missing"),
        (Nothing, False, "Nothing, which load returned: method run is missing$"),
        (Misspelt, True, "Misspelt, which load returned: parallell has to be renamed: to parallel"),
        (int, True, "builtins.int, which load returned: method run is missing"),
    ],
)
def test_an_engine_without_a_method_is_an_error(
    offer: Callable[..., str], tmp_path: Path, engine: type, refit: bool, message: str
) -> None:
    """The error names the class, and the entry stays in the cache."""

    def load(self: Plugin, *args: Any, **kwargs: Any) -> object:
        loaded = Interpreter.load(self, *args, **kwargs)
        if engine is Misspelt:
            loaded.__class__ = Misspelt
            return loaded
        return engine()

    fixed = replace(Plugin.capabilities, refit=refit)
    offer(type("Wrong", (Plugin,), {"load": load, "capabilities": fixed}))
    with pytest.raises(BackendUnavailableError, match=message):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")
    offer(type("Right", (Plugin,), {"capabilities": fixed}))
    report = trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache").report
    assert report.partitions[0].outcome == "hit"


def test_an_engine_that_loads_nowhere_stays_in_torch(offer: Callable[..., str], tmp_path: Path) -> None:
    """What was built and cannot be loaded is a failed build to ``on_build_failure``."""
    offer(type("Fails", (Plugin,), {"load": _raises(ValueError("bad magic"))}))
    module = trtcache.compile(
        Affine(), (X,), backend="plugin", cache=tmp_path / "cache", settings={"on_build_failure": "torch"}
    )
    assert difference(module(X), Affine()(X)) is None
    assert any("ValueError: bad magic" in str(left) for left in module.report.left)


def test_a_build_that_writes_no_file_is_an_error(offer: Callable[..., str], tmp_path: Path) -> None:
    """The error names the file."""
    offer(type("Forgets", (Plugin,), {"build": lambda *args: Artifact(args[-1] / "engine.bin")}))
    with pytest.raises(BuildError, match=r"its build wrote no file engine\.bin, which its Artifact names"):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")


def test_a_build_that_returns_no_artifact_is_an_error(offer: Callable[..., str], tmp_path: Path) -> None:
    """The error of a forgotten ``return`` says so."""
    offer(type("Forgets", (Plugin,), {"build": lambda *_: None}))
    with pytest.raises(BuildError, match="its build returned None, not an Artifact"):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")


def test_an_exception_of_a_load_builds_again(offer: Callable[..., str], tmp_path: Path) -> None:
    """An entry that fails to load twice is built again once; if that fails too, the error says why."""
    offer(Plugin)
    trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")
    original, failures = Plugin.load, iter([ValueError("bad magic"), ValueError("bad magic"), None])

    def load(self: Plugin, *args: Any, **kwargs: Any) -> object:
        if error := next(failures):
            raise error
        return original(self, *args, **kwargs)

    offer(type("Once", (Plugin,), {"load": load}))
    report = trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache").report
    assert report.partitions[0].outcome == "built"
    offer(type("Always", (Plugin,), {"load": _raises(ValueError("bad magic"))}))
    with pytest.raises(IncompatibleEngineError, match="ValueError: bad magic"):
        trtcache.compile(Affine(), (X,), backend="plugin", cache=tmp_path / "cache")


def test_full_memory_is_not_the_entrys_fault(offer: Callable[..., str], tmp_path: Path) -> None:
    """What says nothing about the artifact leaves it in the cache."""
    offer(Plugin)
    path = tmp_path / "cache"
    trtcache.compile(Affine(), (X,), backend="plugin", cache=path)
    for error in (MemoryError("full"), torch.OutOfMemoryError("full"), OSError(28, "full")):
        offer(type("Full", (Plugin,), {"load": _raises(error)}))
        with pytest.raises(type(error), match="full"):
            trtcache.compile(Affine(), (X,), backend="plugin", cache=path)
    offer(Plugin)
    assert trtcache.compile(Affine(), (X,), backend="plugin", cache=path).report.partitions[0].outcome == "hit"


def test_engines_without_refit_refuse_other_weights(offer: Callable[..., str], tmp_path: Path) -> None:
    """Nothing changes, and the error says what to do; a compile with the new weights works."""
    offer(type("Fixed", (Plugin,), {"capabilities": replace(Plugin.capabilities, refit=False)}))
    options: dict[str, Any] = {"backend": "plugin", "cache": tmp_path / "cache"}
    module = trtcache.compile(Affine(1.0), (X,), **options)
    before = module(X)
    for change in (module.refit, module.with_weights):
        with pytest.raises(FixedWeightsError, match="engines of backend 'plugin' take no other weights; compile"):
            change(Affine(2.0).state_dict())
    assert all(map(torch.equal, module(X), before))
    other = trtcache.compile(Affine(2.0), (X,), **options)
    assert other.report.partitions[0].outcome == "hit"
    assert difference(other(X), Affine(2.0)(X)) is None


class Concurrent(Interpretation):
    """An engine that accepts concurrent calls."""

    def parallel(self, calls: int) -> Concurrent:  # as the protocol
        """Return this engine."""
        return self


def test_concurrent_engines_without_refit_refuse_other_weights(offer: Callable[..., str], tmp_path: Path) -> None:
    """They are found to accept concurrent calls, and take no other weights then either."""

    def load(self: Plugin, *args: Any, **kwargs: Any) -> Engine:
        engine = Plugin.load(self, *args, **kwargs)
        engine.__class__ = Concurrent
        return engine

    members = {"capabilities": replace(Plugin.capabilities, refit=False), "load": load}
    offer(type("Fixed", (Plugin,), members))
    module = trtcache.compile(Affine(1.0), (X,), backend="plugin", cache=tmp_path / "cache")
    with module.runners(2) as runners:
        assert runners.report.why_not == ""
        with pytest.raises(FixedWeightsError):
            module.refit(Affine(2.0))
