"""Getting before torch_tensorrt and away again: versions, imports, and the line at exit."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.documents import console, python_blocks, shape
from tests.integrations import stand_in
from tests.integrations.partitions import partition
from trtcache.digests import CacheKey
from trtcache.errors import BackendUnavailableError, SettingsError
from trtcache.integrations.torch_tensorrt import installation, results
from trtcache.integrations.torch_tensorrt.installation import (
    CONTRACTS,
    ConversionTally,
    breach,
    contract_for,
    known_versions,
)
from trtcache.store.contract import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integrations.conftest import Shop
    from trtcache.cache import Cache

_NAMES = ("interpret_module_to_result", "convert_module")


def _functions() -> list[Any]:
    names = (
        "torch_tensorrt.dynamo.conversion._conversion",
        "torch_tensorrt.dynamo.conversion",
        "torch_tensorrt.dynamo._compiler",
    )
    return [getattr(import_module(module), name) for module in names for name in _NAMES]


def test_versions_are_known_by_their_minor_number() -> None:
    """Patches, builds and nightlies of a minor version keep its contract; others are not known."""
    assert contract_for("2.14.0+cu130") is CONTRACTS["2.14"]
    assert contract_for("2.8.0.dev20260101") is CONTRACTS["2.8"]
    assert [contract_for(version) for version in ("2.7.0", "2.15.0", "3.0", "", "of no version")] == [None] * 5
    assert known_versions() == "2.8 to 2.14"


@pytest.mark.parametrize("version", CONTRACTS)
def test_each_contract_says_what_an_entry_keeps(version: str) -> None:
    """What a result says beside the engine is what torch_tensorrt's own cache would hand over."""
    contract = CONTRACTS[version]
    assert set(contract.stored) == set(contract.cached) - {"serialized_engine", "input_specs", "compilation_settings"}


@pytest.mark.parametrize("change", ["parameter", "field", "class", "function", "shapes"])
def test_a_breach_of_contract_is_told(
    provide: Callable[..., None], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A version of a known number that was changed is found out before anything is wrapped."""
    provide("2.14.0", breach="later" if change == "parameter" else "")
    conversion = import_module("torch_tensorrt.dynamo.conversion._conversion")
    match change:
        case "field":
            conversion.SerializedInterpreterResult._fields = ("serialized_engine",)
        case "class":
            monkeypatch.delattr(conversion, "SerializedInterpreterResult")
        case "function":
            monkeypatch.delattr(conversion, "interpret_module_to_result")
        case "shapes":
            monkeypatch.delattr(conversion, "extract_symbolic_shape_expressions")
    assert breach(CONTRACTS["2.14"], conversion)


def test_an_unknown_version_runs_as_it_is(
    provide: Callable[..., None], cache: Cache, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the versions that are known; nothing is wrapped, and the program goes on."""
    provide("2.14.0")
    init = tmp_path / "2.14.0" / "torch_tensorrt" / "__init__.py"
    init.write_text(init.read_text().replace('"2.14.0"', '"2.99.0"'))
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    assert shop.compile(partition()).serialized_engine
    assert [one.levelno for one in caplog.records if one.name.startswith("trtcache.")] == [logging.WARNING]
    assert "2.99.0 is not known; 2.8 to 2.14 are; upgrade trtcache" in caplog.text
    from trtcache.integrations.torch_tensorrt import engine_cache

    with pytest.raises(BackendUnavailableError, match=r"2\.99\.0"):
        engine_cache.EngineCache(cache)


def test_a_changed_package_runs_as_it_is(
    provide: Callable[..., None], cache: Cache, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A shape that nobody foresaw is a warning with its traceback, never an error of the program's import."""
    provide("2.14.0")
    (tmp_path / "2.14.0" / "tensorrt.py").write_text("raise RuntimeError('no TensorRT')")
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    assert shop.compile(partition()).serialized_engine
    assert "no TensorRT" in caplog.text


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2.14.0", "torch_tensorrt converted nothing"),
        ("2.7.1", "nothing was cached: torch_tensorrt ran without trtcache"),
    ],
)
def test_a_program_that_was_run_for_nothing_is_told_why(
    provide: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    version: str,
    says: str,
) -> None:
    """``trtcache run`` has a line at exit for a program without torch_tensorrt, with an old one, and without a use."""
    provide("2.14.0")
    init = tmp_path / "2.14.0" / "torch_tensorrt" / "__init__.py"
    init.write_text(init.read_text().replace('"2.14.0"', f'"{version}"'))
    monkeypatch.setenv(installation.RUN, str(os.getpid()))
    one = installation.Installation(always_reports=True)
    one.begin()
    one._report()
    import_module("torch_tensorrt")
    one._report()
    assert capsys.readouterr().err == f"trtcache: torch_tensorrt was not imported\ntrtcache: {says}\n"
    assert ("2.8 to 2.14 are; upgrade torch_tensorrt" in caplog.text) == (version == "2.7.1")


@pytest.mark.parametrize("order", ["install first", "import first"])
def test_it_is_wrapped_and_unwrapped(provide: Callable[..., None], cache: Cache, order: str) -> None:
    """Before or after the import, under every name that callers use; and afterwards nothing is left."""
    provide("2.14.0")
    if order == "import first":
        import_module("torch_tensorrt")
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    wrapped = _functions()
    assert all(hasattr(one, "trtcache_installation") for one in wrapped)
    assert inspect.signature(wrapped[0]).parameters.keys() == set(CONTRACTS["2.14"].parameters)
    assert wrapped[0].__name__ == "interpret_module_to_result"
    trtcache.uninstall()
    assert not any(hasattr(one, "trtcache_installation") for one in _functions())
    assert not any(isinstance(one, installation.Installation) for one in sys.meta_path)
    trtcache.uninstall()


def test_a_second_install_takes_the_place_of_the_first(
    provide: Callable[..., None], cache: Cache, shop: Shop, tmp_path: Path
) -> None:
    """The functions are wrapped once, with the cache that was named last."""
    provide("2.14.0")
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    trtcache.install(cache=tmp_path / "second")
    shop.compile(partition())
    assert list((tmp_path / "second").rglob("*"))
    assert cache.store is not None
    assert list(cache.store.scan()) == []
    assert not hasattr(_functions()[0].__wrapped__, "__wrapped__")


def test_the_module_s_own_loader_is_put_back(provide: Callable[..., None], cache: Cache) -> None:
    """After the import nothing of the hook is to be seen on the module, so that resources are found and it reloads."""
    provide("2.14.0")
    trtcache.install(cache=cache)
    package = import_module("torch_tensorrt")
    assert type(package.__loader__).__module__.startswith(("importlib", "_frozen_importlib"))
    assert package.__spec__.loader is package.__loader__
    assert inspect.getsource(package)
    importlib.reload(package)


def test_a_missing_package_is_as_missing_as_ever(cache: Cache) -> None:
    """Asking for torch_tensorrt where there is none is Python's own error."""
    trtcache.install(cache=cache)
    assert importlib.util.find_spec("torch_tensorrt") is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'torch_tensorrt'"):
        import_module("torch_tensorrt")
    trtcache.uninstall()


def test_installing_imports_neither_torch_nor_torch_tensorrt(run_fresh_python: Callable[..., Any]) -> None:
    """A program that never uses torch does not pay for it."""
    done = run_fresh_python(
        "import sys, trtcache; trtcache.install(); print('torch' in sys.modules, 'torch_tensorrt' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False"]


def test_an_impossible_setting_is_told_by_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a directory is named, what the environment says of it must be possible."""
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "plenty")
    with pytest.raises(SettingsError):
        trtcache.install(cache=tmp_path)


_SERVE = """
import sys
import torch_tensorrt
from torch_tensorrt.dynamo._settings import CompilationSettings
from tests.integrations.partitions import partition
module = partition()
inputs = [torch_tensorrt.Input(node.meta["val"]) for node in module.graph.nodes if node.op == "placeholder"]
torch_tensorrt.dynamo._compiler.compile_partition(module, inputs, CompilationSettings())
"""


def _served(folder: Path, log: Path, tmp_path: Path) -> tuple[str, list[str]]:
    script = tmp_path / "serve.py"
    script.write_text(_SERVE)
    project = Path(__file__).parents[2]
    environ = {**os.environ, "TRTCACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": f"{folder}:{project}"}
    command = [sys.executable, "-W", "ignore", "-m", "trtcache_cli", "run", str(script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    built = log.read_text().split()
    log.write_text("")
    return done.stderr.splitlines()[-1], built


def test_a_program_that_nobody_changed_is_served(log: Path, tmp_path: Path) -> None:
    """``trtcache run serve.py`` twice: the first builds, the second hits, and each says so as the documents show it."""
    first, second = ["trtcache: <number> built in <duration>"], ["trtcache: <number> hit, <duration>, <duration> saved"]
    folder = stand_in.write(tmp_path / "packages", "2.14.0")
    for name in ("README.md", "docs/integrations.md"):
        shown = console(name)["trtcache run serve.py"]
        assert [[shape(line) for line in lines] for lines in shown] == [first, second]
    line, built = _served(folder, log, tmp_path)
    assert built == ["build", "load"]
    assert [shape(line)] == first
    line, built = _served(folder, log, tmp_path)
    assert built == ["load"]
    assert [shape(line)] == second


def _entry(outcome: Any, build_s: float) -> Entry:
    key = CacheKey.of("test", {})
    return Entry(key, "test", None, build_s, 0, {}, outcome, None, None, 0.0, {})


def test_the_line_says_what_was_done() -> None:
    """Hits with their time and what they saved, builds, and what went past the cache; nothing for nothing."""
    tally = ConversionTally()
    assert tally.line() == ""
    for _ in range(14):
        tally.add(_entry("hit", 22.2786), 0.0643)
    assert tally.line() == "14 hits, 900 ms, 5 min saved"
    tally.add(_entry("built", 40.1), 41)
    tally.add_uncached()
    assert tally.line() == "14 hits, 900 ms, 5 min saved; 1 built in 40.1 s; 1 not cached"


def test_a_forked_child_speaks_of_itself_only() -> None:
    """What the parent did is the parent's to tell."""
    tally = ConversionTally()
    tally.add(_entry("built", 40.1), 41)
    tally.pid = -1
    assert tally.line() == ""
    tally.add_uncached()
    assert tally.line() == "1 not cached"


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            3,
            -0.0,
            "text",
            [1, [2]],
            (1, ("a", None)),
            {"a": (1,)},
            {("k", 1): [float("inf")]},
            {"$dtype": 1},
        ),
        *(torch.float16, {}),
    ],
    ids=repr,
)
def test_values_come_back_as_they_were(value: Any) -> None:
    """Written as JSON and read again, with their types."""
    import json

    back = results.read(json.loads(json.dumps(results.to_json(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "written",
    [
        *({"$object": 1}, {"a": 1, "b": 2}, {"$dtype": "load"}, {"$dtype": 3}),
        *({"$float": "soon"}, {"$dict": [[1]]}),
    ],
    ids=repr,
)
def test_what_nobody_wrote_is_refused(written: Any) -> None:
    """As a value error, whatever it is."""
    with pytest.raises((ValueError, TypeError)):
        results.read(written)


def test_a_value_of_another_type_has_no_stored_form() -> None:
    """Rather than a representation that cannot be read again."""
    with pytest.raises(TypeError, match="no stored form"):
        results.to_json({"a": [object()]})


def test_the_documentation_runs(provide: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Python of docs/integrations.md about torch_tensorrt runs as it stands, beside a stand-in."""
    provide("2.14.0")
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    text = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
    section = text.partition("## torch_tensorrt\n")[2].partition("\n## ")[0]
    blocks = python_blocks(section)
    assert len(blocks) == section.count("```python") == 2
    exec("\n".join(blocks), {})  # noqa: S102  # the documentation's own
    assert hasattr(_functions()[0], "trtcache_installation")
