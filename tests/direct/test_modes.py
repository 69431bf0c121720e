"""Direct mode in each mode, and with caches that are damaged, read-only, disabled or incomplete."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

import trtcache
from tests.comparing import difference
from tests.models import Affine
from trtcache.errors import SettingsError
from trtcache.frontends.direct.manifest import DETAILS, KIND, MEMBER
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(3, 4)
Compile = Callable[..., trtcache.CompiledModule]


@pytest.fixture
def compiled(interpreter: str, tmp_path: Path) -> Compile:
    """``trtcache.compile`` in direct mode, with the interpreter and a cache of this test's own."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        given = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on", **kwargs}
        return trtcache.compile(*args, **given)

    return compile_


def changed(root: Path, change: Callable[[Any], Any]) -> None:
    """Change the manifests of the only entry of a cache, which stays a sound entry."""
    store = DiskStore.open(root)
    (digest,) = (one.digest for one in store.scan() if store.header(one.digest).kind == KIND)
    header = store.header(digest)
    entry = store.get(header.key)
    document = json.loads(bytes(entry.read(MEMBER)))  # type: ignore[union-attr]  # it is there
    change(document)
    content = {MEMBER: json.dumps(document).encode(), DETAILS: b"{}"}
    store.put(header.key, content, kind=KIND, name=header.name)


def wrong(document: Any) -> None:
    """Have manifests lead to another program."""
    for one in document["manifests"]:
        one["program"][0] = "0" * 64


class Halves(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


class Splits(nn.Module):
    """A model that creates a named tuple in ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = Halves(*self.lin(x).chunk(2, dim=-1))
        return halves.low - 2 * halves.high


def test_a_model_that_creates_named_tuples_is_exported_once(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their constructors are code of a string, as ``collections.namedtuple`` makes them; others are a miss."""
    model = Splits()
    reports = [compiled(model, (X,)).report.direct for _ in range(2)]
    assert reports == ["miss: no matching manifest", "hit"]
    swapped = collections.namedtuple("Halves", "high low")
    monkeypatch.setattr(sys.modules[__name__], "Halves", swapped)
    module = compiled(model, (X,))
    assert module.report.direct.startswith("miss: ")
    assert difference(module(X), model(X)) is None


class Selects(nn.Module):
    """A model with a size that depends on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum()


@pytest.mark.parametrize("mode", ["on", "verify"])
def test_a_model_with_sizes_that_depend_on_data_is_exported_once(compiled: Compile, mode: str) -> None:
    """Lowering adds such sizes to the program's environment; the manifest has the digest from before."""
    reports = [compiled(Selects(), (X,), direct=mode).report.direct for _ in range(2)]
    assert reports == ["miss: no matching manifest", "hit" if mode == "on" else "verified"]


def test_a_model_is_exported_once(compiled: Compile, tmp_path: Path) -> None:
    """The second compile is a hit with other weights, and so is one of another instance of the class."""
    first = compiled(Affine(), (X,))
    second, third = compiled(Affine(2.0), (X,)), compiled(Affine(3.0), (X,), name="other")
    assert [one.report.direct for one in (first, second, third)] == ["miss: no matching manifest", "hit", "hit"]
    assert second.report.partitions[0].key == first.report.partitions[0].key
    assert second.report.partitions[0].outcome == "hit"
    assert "instead of" in str(second.report)
    assert difference(Affine(2.0)(X), second(X)) is None
    assert {event.event for event in DiskStore.open(tmp_path / "cache").events.read()} == {"miss", "put", "hit"}


def test_verify_exports_and_compares(compiled: Compile) -> None:
    """It says so, and goes the slow way."""
    compiled(Affine(), (X,))
    module = compiled(Affine(), (X,), direct="verify")
    assert (module.report.direct, module.report.route) == ("verified", "alias")


class Asks(nn.Module):
    """A model that knows whether it is exported, and with ``by`` of 3 does something else then."""

    by = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if get_proxy_mode() is None else self.by)


def test_a_wrong_manifest_is_rejected_by_verify(
    compiled: Compile, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged and counted; direct mode is off then."""
    compiled(Asks(), (X,))
    monkeypatch.setattr(Asks, "by", 3)
    module = compiled(Asks(), (X,), direct="verify")
    assert module.report.direct.startswith("refused: it has the program b3:")
    assert "is refused" in caplog.text
    assert torch.equal(module(X), X * 3)
    events = DiskStore.open(tmp_path / "cache").events.read()
    assert [event.kind for event in events if event.event == "reject"] == [KIND]
    assert compiled(Asks(), (X,)).report.direct.startswith("off: the exported program performs other operations")


def test_another_program_with_the_same_operations_takes_the_place(compiled: Compile, tmp_path: Path) -> None:
    """It is what a manifest is for; the program that is not there any more would be a miss each time."""
    compiled(Affine(), (X,))
    changed(tmp_path / "cache", wrong)
    assert compiled(Affine(), (X,), direct="verify").report.direct == "verified"
    assert compiled(Affine(), (X,)).report.direct == "hit"


@pytest.mark.parametrize(
    "change",
    [
        wrong,
        lambda document: document.update(format=0),
        lambda document: document.update(manifests=7),
        lambda document: document["manifests"].append({}),
        lambda document: document["manifests"][0].update(files=[1]),
        lambda document: document["manifests"][0].update(trace=7),
        lambda document: document["manifests"][0].update(trace=[[]]),
        lambda document: document["manifests"][0].update(trace=[["aten.mul.Tensor"]]),
        lambda document: document["manifests"][0]["trace"].pop(),
        lambda document: document["manifests"][0]["trace"][0].__setitem__(3, ["new", 1]),
        lambda document: document["manifests"][0]["trace"][0].__setitem__(3, ["t", "nothing"]),
        lambda document: document.update(manifests=[]),
        lambda document: document["manifests"][0].update(versions=[]),
        lambda document: document["manifests"][0].update(versions=7),
        lambda document: document["manifests"][0].update(versions=[[7]]),
        lambda document: document["manifests"][0].update(device="nowhere"),
    ],
)
def test_a_manifest_of_any_other_content_is_a_miss(compiled: Compile, tmp_path: Path, change: Any) -> None:
    """An intact entry with other content is not used, and the model is compiled."""
    compiled(Affine(), (X,))
    changed(tmp_path / "cache", change)
    module = compiled(Affine(2.0), (X,))
    assert not module.report.direct.startswith("hit")
    assert difference(Affine(2.0)(X), module(X)) is None
    assert compiled(Affine(), (X,)).report.direct == "hit"


def test_a_damaged_entry_is_a_miss(compiled: Compile, tmp_path: Path) -> None:
    """It is quarantined like any other, and stored again."""
    compiled(Affine(), (X,))
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = (one.digest for one in store.scan() if store.header(one.digest).kind == KIND)
    content = bytearray(store.path(digest).read_bytes())
    content[-10] ^= 1
    store.path(digest).write_bytes(content)
    assert compiled(Affine(), (X,)).report.direct.startswith("miss: ")
    assert compiled(Affine(), (X,)).report.direct == "hit"


@pytest.mark.parametrize(
    ("variable", "second"),
    [
        ("TRTCACHE_RECACHE", "miss"),
        ("TRTCACHE_DISABLE", "off: there is no cache"),
        ("TRTCACHE_READONLY", "hit"),
        ("TRTCACHE_FORBID_BUILD", "hit"),
    ],
)
def test_the_switches_hold_for_manifests(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, variable: str, second: str
) -> None:
    """They are entries like any other."""
    compiled(Affine(), (X,))
    monkeypatch.setenv(variable, "1")
    assert compiled(Affine(), (X,)).report.direct.startswith(second)


def test_where_nothing_can_be_stored_nothing_is_recorded(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model that is not known stays so."""
    compiled(nn.Linear(4, 4), (X,))
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    assert [compiled(Affine(), (X,)).report.direct for _ in range(2)] == ["miss: no matching manifest"] * 2
    assert tmp_path.exists()
    settings = {"operator_versions": {"mylib::one": "1"}}
    missed = compiled(nn.Linear(4, 4), (X,), settings=settings).report.direct
    assert missed == "miss: no cached key for this program with these settings"


def test_a_hit_needs_its_entry_and_its_key_alias(compiled: Compile, tmp_path: Path) -> None:
    """Without one of them the slow path is taken, and direct mode hits again after it."""
    module = compiled(Affine(), (X,))
    key = module.report.partitions[0].key
    assert key is not None
    DiskStore.open(tmp_path / "cache").remove(key.digest)
    assert [compiled(Affine(), (X,)).report.direct.split(":")[0] for _ in range(2)] == ["miss", "hit"]


def test_other_settings_have_another_key_alias(compiled: Compile) -> None:
    """The manifest leads to the program, whose alias depends on the settings."""
    compiled(Affine(), (X,))
    settings = {"operator_versions": {"mylib::one": "1"}}
    reports = [compiled(Affine(), (X,), settings=settings).report for _ in range(2)]
    assert [one.direct.split(":")[0] for one in reports] == ["miss", "hit"]


def test_a_partitioned_program_turns_direct_mode_off(compiled: Compile) -> None:
    """It has no key alias, and the report has the reason."""
    settings = {"torch_executed_ops": ["aten.relu.default"], "min_block_size": 2}
    report = compiled(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (X,), settings=settings).report
    assert report.direct == "off: the program has no key alias (TRTCACHE_LOG=keys logs the reason)"


def test_the_mode_is_checked_and_in_no_key(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """``off`` has the same key, and what is no mode is refused with the ones that there are."""
    key = compiled(Affine(), (X,)).report.partitions[0].key
    off = compiled(Affine(), (X,), direct="off")
    assert (off.report.direct, off.report.partitions[0].key) == ("off: direct=off", key)
    with pytest.raises(SettingsError, match="on, verify, off"):
        compiled(Affine(), (X,), direct="maybe")
    monkeypatch.setenv("TRTCACHE_DIRECT", "perhaps")
    with pytest.raises(SettingsError, match="TRTCACHE_DIRECT"):
        compiled(Affine(), (X,))


def test_a_model_that_alternates_keeps_both_manifests(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of the environment has been seen with both values, and each of them hits."""
    seen = []
    for value in ("1", "2", "1", "2"):
        monkeypatch.setenv("AFFINE_MODE", value)
        seen.append(compiled(Reading(), (X,)).report.direct)
    assert seen[0] == "miss: no matching manifest"
    assert seen[1].startswith("miss: operation 1 (line ")
    assert seen[1].endswith("): aten.mul.Tensor(input 0, 1) -> aten.mul.Tensor(input 0, 2)")
    assert seen[2:] == ["hit", "hit"]


class Reading(nn.Module):
    """A model that asks the environment."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import os

        return x * int(os.environ["AFFINE_MODE"])


def test_the_nearest_manifest_explains_the_miss(compiled: Compile) -> None:
    """A weight of another size is named, before and after."""
    compiled(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), (X,), name="net")
    report = compiled(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 5)), (X,), name="net").report
    assert (
        report.direct
        == "miss: weights 1.weight: 4 -> 5; weights 1.weight: 64 -> 80; weights 1.bias: 4 -> 5, and 1 more"
    )


def test_another_rate_of_dropout_is_exported_once(compiled: Compile) -> None:
    """No operation depends on it in eval mode, but it is an argument of a function."""
    models = [nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate)).eval() for rate in (0.1, 0.2, 0.2, 0.1)]
    reports = [compiled(model, (X,), name="net").report.direct for model in models]
    other = "miss: other functions of torch are called, which have the same operators here"
    assert reports == ["miss: no matching manifest", other, "hit", "hit"]
