"""Build settings of AOTInductor: options of Inductor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

from trtcache.config.backend_settings import BackendSettings
from trtcache.errors import SettingsError

Option: TypeAlias = bool | int | float | str

PINNED_INDUCTOR_OPTIONS: Mapping[str, Option] = {
    # Without this an LSTM was silently wrong after a refit: a small bias had been inlined as a constant.
    "always_keep_tensor_constants": True,
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    # Folds constants at load under names that no weight map knows.
    "aot_inductor.use_runtime_constant_folding": False,
    # Drops all slots.
    "freezing": False,
    # Computes with the values of single-element weights, which do not exist while a package is built
    # (torch/_inductor/fx_passes/joint_graph.py, constant_fold_uniform_value): x * t.exp() was off by any amount.
    "joint_graph_constant_folding": False,
    # The process that runs a package chooses the number of threads, not the one that builds it.
    "cpp.dynamic_threads": True,
}
"""Inductor options that refit, sharing and the key rely on; ``InductorSettings`` cannot set them."""


@dataclass(frozen=True, slots=True)
class InductorSettings(BackendSettings):
    """Options of ``torch._inductor.config`` by dotted name; in a mapping, these names are the settings."""

    section: ClassVar[str] = "inductor"

    options: Mapping[str, Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            if name in PINNED_INDUCTOR_OPTIONS:
                hint = "; settings={'weights': 'frozen'} sets it" if name == "freezing" else ""
                raise SettingsError(
                    f"settings.inductor[{name!r}]", f"fixed by trtcache: refit relies on its value{hint}"
                )
            if not isinstance(value, (bool, int, float, str)):
                raise SettingsError(f"settings.inductor[{name!r}]", f"{value!r} is not a boolean, number or string")

    @classmethod
    def of(cls, given: object) -> Self:
        """Return settings from settings or from a mapping of option names."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise SettingsError("settings.inductor", f"expected a mapping of option names, got {given!r}")
        return cls(given)

    @property
    def explicit(self) -> dict[str, Any]:
        """The options."""
        return dict(self.options)

    @classmethod
    def describe(cls) -> dict[str, object]:
        """Return a line for all options: their names and defaults depend on torch's version."""
        return {"NAME": "as in torch._inductor.config"}
