"""Settings of backends: each has its own dataclass, and what belongs to another backend is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.compiler.program_file import KeptOptions
from trtcache.config.backend_settings import BackendSettings
from trtcache.errors import BackendUnavailableError, SettingsError
from trtcache.frontends.source import CompileOptions
from trtcache.settings import Settings
from trtcache.testing.interpreter import Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)


@dataclass(frozen=True, slots=True)
class PluginSettings(BackendSettings):
    """Settings of every checked type."""

    section: ClassVar[str] = "plugin"

    level: int = 2
    mode: Literal["fast", "small"] = "fast"
    limit: float | None = None
    providers: tuple[str, ...] = ("cpu",)

    def __post_init__(self) -> None:
        if self.level < 0:
            raise ValueError("level is negative")


class Plugin(Interpreter):
    """A backend with settings of its own."""

    name: ClassVar[str] = "plugin"
    settings_class = PluginSettings


@pytest.fixture
def plugin(offer: Callable[..., str]) -> str:
    """Offer the backend, and return its name."""
    return offer(Plugin)


def document(backend: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a program's key."""
    parts: Any = trtcache.key(Affine(), (X,), backend=backend, settings=settings).document["parts"]
    return dict(parts)


@dataclass(frozen=True, slots=True)
class Counted(BackendSettings):
    """A setting that is a number or a flag."""

    section: ClassVar[str] = "counted"

    streams: int | bool = 1


def test_a_flag_is_not_the_number_that_it_is_equal_to() -> None:
    """``True`` differs from a default of 1, and so does the key."""
    assert (Counted.of({"streams": True}).explicit, Counted.of({"streams": 1}).explicit) == ({"streams": True}, {})


@pytest.mark.usefixtures("plugin")
def test_a_backend_reads_its_own_settings() -> None:
    """A mapping, the dataclass and the field ``backends`` give the same; lists are tuples, and numbers floats."""
    given = Settings.of({"plugin": {"level": 3, "providers": ["cpu", "gpu"], "limit": 1}})
    assert given.section(PluginSettings) == PluginSettings(3, limit=1, providers=("cpu", "gpu"))
    assert Settings(backends={"plugin": PluginSettings(3)}) == Settings.of({"plugin": {"level": 3}})
    assert Settings.of({"backends": {"plugin": {"level": 3}}}) == Settings.of({"plugin": {"level": 3}})
    assert Settings.of({"plugin": {"level": 2}}) == Settings() == Settings.of({"plugin": {}})
    assert Settings().section(PluginSettings) == PluginSettings()


def test_they_are_in_the_key(plugin: str) -> None:
    """Under the backend's name if they differ from the defaults, which are among the versions."""
    one, default = document(plugin, {"plugin": {"level": 3}}), document(plugin, {})
    assert one["settings"] == {**default["settings"], "plugin": {"level": 3}}
    assert default["toolchain"]["settings"] == {"level": 2, "mode": "fast", "providers": ["cpu"]}
    assert document(plugin, {"plugin": {"level": 2}}) == default


def test_they_reach_the_build(plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build gets them as they were given, and other ones are another entry."""
    levels: list[int] = []
    build = Plugin.build

    def record(self: Plugin, program: Any, settings: Settings, *others: Any) -> object:
        levels.append(settings.section(PluginSettings).level)
        return build(self, program, settings, *others)

    monkeypatch.setattr(Plugin, "build", record)
    for level in (3, 4, 3):
        trtcache.compile(Affine(), (X,), backend=plugin, cache=tmp_path, settings={"plugin": {"level": level}})
    assert levels == [3, 4]


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levle": 1}, r"settings\.plugin\['levle'\]: unknown; did you mean 'level'"),
        ({"level": "3"}, r"settings\.plugin\['level'\]: expected int, got '3'"),
        ({"level": True}, r"settings\.plugin\['level'\]: expected int, got True"),
        ({"mode": "slow"}, r"settings\.plugin\['mode'\]: expected .*Literal\['fast', 'small'\], got 'slow'"),
        ({"limit": "1"}, r"settings\.plugin\['limit'\]: expected float \| None, got '1'"),
        ({"providers": "cpu"}, r"settings\.plugin\['providers'\]: expected .*tuple.*, got 'cpu'"),
        ({"providers": [object()]}, r"settings\.plugin\['providers'\]: .* cannot be part of a key"),
        ({"level": -1}, r"settings\.plugin: level is negative"),
        (["level"], r"settings\.plugin: expected PluginSettings or a mapping of its fields"),
    ],
)
def test_an_error_names_the_field(given: object, message: str) -> None:
    """A wrong name has a suggestion, and a wrong value what is expected."""
    with pytest.raises(SettingsError, match=message):
        Settings.of({"plugin": given})


@pytest.mark.usefixtures("plugin")
def test_an_unknown_section_has_a_suggestion() -> None:
    """Backends count among the known names, and their fields do not."""
    with pytest.raises(SettingsError, match=r"settings\['plugn'\]: unknown; did you mean 'plugin'"):
        Settings.of({"plugn": {"level": 1}})
    with pytest.raises(SettingsError, match=r"did you mean 'tensorrt'"):
        Settings.of({"tensort": {}})
    with pytest.raises(SettingsError, match=r"settings\.backends\['tensorrt'\]: it is a field of its own"):
        Settings.of({"backends": {"tensorrt": {}}})


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("aot_inductor", {"plugin": {"level": 1}}, r"settings\.plugin\['level'\]: backend 'aot_inductor' has no such"),
        ("aot_inductor", {"tensorrt": {"refit": True}}, r"settings\.tensorrt\['refit'\]: .* are settings\.inductor"),
        ("plugin", {"inductor": {"max_autotune": True}}, r"'plugin' has no such .* its settings are settings\.plugin"),
    ],
)
def test_the_settings_of_another_backend_are_an_error(
    plugin: str, backend: str, settings: dict[str, Any], message: str
) -> None:
    """They would change nothing, and the error has the section that would."""
    with pytest.raises(SettingsError, match=message):
        document(backend, settings)


def test_a_section_has_the_backends_name(offer: Callable[..., str]) -> None:
    """Otherwise the settings could not be found by name, or be mistaken for another backend's."""
    offer(type("Wrong", (Plugin,), {"name": "wrong"}))
    with pytest.raises(BackendUnavailableError, match="attribute section of PluginSettings has to be 'wrong'"):
        document("wrong", {})
    with pytest.raises(SettingsError, match=r"settings\.wrong: backend 'wrong' has no settings of this name"):
        Settings.of({"wrong": {"level": 1}})
    offer(type("Dict", (Plugin,), {"settings_class": dict}))
    with pytest.raises(BackendUnavailableError, match="settings_class is not a class that derives from"):
        document("plugin", {})


@pytest.mark.usefixtures("plugin")
def test_a_list_of_a_backend_is_sent_in_its_order() -> None:
    """To a worker and with a kept program: the order of providers decides which one builds."""
    given = {"plugin": {"providers": ("gpu", "cpu")}, "torch_executed_ops": ("aten.tanh", "aten.softmax")}
    options = CompileOptions.of("plugin", given, None)
    sent = KeptOptions.read(KeptOptions.of(options).write())
    assert Settings.of(sent.settings).section(PluginSettings) == options.settings.section(PluginSettings)
    assert sent.settings["torch_executed_ops"] == ["aten.softmax", "aten.tanh"]
