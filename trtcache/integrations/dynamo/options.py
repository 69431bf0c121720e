"""What ``torch.compile(backend="trtcache", options=..., mode=...)`` can say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.cache import Cache
from trtcache.config.named_fields import field_names, refuse_unknown
from trtcache.errors import SettingsError, did_you_mean
from trtcache.settings import Settings

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from trtcache.settings import Option

# torch/_inductor/__init__.py, list_mode_options. The other modes are for CUDA graphs, which a package cannot have.
_MODES: Mapping[str, Mapping[str, Option]] = {
    "default": {},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}

_TRAINING = ("warn", "eager", "error")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one ``torch.compile``: the fields of ``Settings``, and these.

    Attributes:
        settings: what the fields of ``Settings`` among the options make.
        backend: as for ``trtcache.compile``.
        target: as for ``trtcache.compile``.
        cache: as for ``trtcache.compile``.
        name: what people call the graphs; by default the class of the module that they come from.
        training: what becomes of graphs through which gradients are to flow: ``eager`` runs them as they are, ``warn``
            (the default) too but says so once, ``error`` refuses them.
    """

    settings: Settings = field(default_factory=Settings)
    backend: str = "auto"
    target: str | None = None
    cache: Cache | str | os.PathLike[str] | None = None
    name: str | None = None
    training: str = "warn"

    def __post_init__(self) -> None:
        if self.training not in _TRAINING:
            raise SettingsError(
                "options['training']", f"{self.training!r}: {did_you_mean(self.training, [*_TRAINING])}"
            )

    @classmethod
    def of(cls, options: Mapping[str, object] | None, mode: str | None) -> Options:
        """Return the options that a user gave.

        Raises:
            SettingsError: an option or the mode is unknown (with the nearest one), or a value is impossible.
        """
        if mode is not None and mode not in _MODES:
            raise SettingsError("mode", f"{mode!r}: {did_you_mean(mode, list(_MODES))}")
        given = dict(options or {})
        ours = [name for name in field_names(cls) if name != "settings"]
        refuse_unknown(given, [*ours, *field_names(Settings)], "options")
        chosen = {name: given.pop(name) for name in ours if name in given}
        if mode:
            given["inductor"] = {**_MODES[mode]}
        return cls(settings=Settings.of(given), **chosen)  # type: ignore[arg-type]  # their users check the values

    def open_cache(self) -> Cache:
        """Return the cache to use.

        Raises:
            SettingsError: a ``TRTCACHE_*`` variable has an impossible value.
            StoreError: ``cache`` names a directory that cannot be a cache.
        """
        return self.cache if isinstance(self.cache, Cache) else Cache(self.cache)
