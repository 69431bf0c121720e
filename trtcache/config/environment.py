"""Configuration from the environment: location, limits and modes of the cache."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.contention import ContentionPolicy
from trtcache.config.file import environment
from trtcache.config.folders import absolute, cache_folder
from trtcache.config.trust import Trust, parse_keys, parse_mode
from trtcache.config.units import parse_size
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_MAX_SIZE_BYTES = 20 * 10**9
DEFAULT_DIRECT = "off"  # an independent test suite of 330 pairs of processes found 52 wrong hits
DIRECT_MODES = ("on", "verify", "off")

VARIABLES = {
    "TRTCACHE_DIR": "the cache directory (default: trtcache in $XDG_CACHE_HOME or ~/.cache)",
    "TRTCACHE_PATH": "instead of TRTCACHE_DIR: the cache directory and read-only ones below it, as UPPER:LOWER:LOWER",
    "TRTCACHE_COPY_UP": "1: copy hits from directories below into the cache directory",
    "TRTCACHE_MAX_SIZE": "prune after a put that makes the cache larger than this (default: 20GB; 0: no limit)",
    "TRTCACHE_MAX_ENTRIES": "prune after a put that makes the cache have more entries than this (default: 0: no limit)",
    "TRTCACHE_DISABLE": "1: neither read nor write the cache; always build",
    "TRTCACHE_READONLY": "1: take hits, write nothing",
    "TRTCACHE_RECACHE": "1: build although there is an entry, and replace it",
    "TRTCACHE_FORBID_BUILD": "1: a miss is an error (for deployments and tests that must not build)",
    "TRTCACHE_ON_BUSY": "while another process builds the entry: wait (default), build it too, or eager: run in torch",
    "TRTCACHE_BUSY_TIMEOUT": "seconds to wait before that; then wait is build (default: no limit; ranks: 480)",
    "TRTCACHE_SIGNATURES": "require: only entries signed by a trusted key; off: any (default: require if shared)",
    "TRTCACHE_TRUSTED_KEYS": "trusted public keys as NAME:HEX, separated by spaces or commas",
    "TRTCACHE_SIGNING_KEY": "path of the secret key that signs new entries",
    "TRTCACHE_DIRECT": "on: skip the export of a known module; verify: export it and compare; off (default)",
    "TRTCACHE_CONFIG": "path of the settings file (default: trtcache/trtcache.toml in $XDG_CONFIG_HOME or ~/.config)",
    "TRTCACHE_LOG": "comma-separated areas to log to standard error: lowering, keys, store, cli",
}

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a cache. ``max_size_bytes`` and ``max_entries`` are None for no limit.

    ``lower`` lists the directories searched after ``root``, which are never written to.
    """

    root: Path
    max_size_bytes: int | None = DEFAULT_MAX_SIZE_BYTES
    max_entries: int | None = None
    disable: bool = False
    readonly: bool = False
    recache: bool = False
    forbid_build: bool = False
    log: str = ""
    trust: Trust = field(default_factory=Trust)
    busy: ContentionPolicy = field(default_factory=ContentionPolicy)
    lower: tuple[Path, ...] = ()
    copy_up: bool = False
    direct: str = DEFAULT_DIRECT

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """Read the ``TRTCACHE_*`` variables, with ``trtcache.toml`` for those that are not set.

        Raises:
            SettingsError: a variable or a setting has an invalid value; the message names it.
        """
        variables, environ = environ, environment(environ, VARIABLES)
        root, lower = _directories(variables, environ)
        size_bytes = parse_size(environ.get("TRTCACHE_MAX_SIZE") or DEFAULT_MAX_SIZE_BYTES, "TRTCACHE_MAX_SIZE")
        return cls(
            root=root,
            lower=lower,
            copy_up=_flag(environ, "TRTCACHE_COPY_UP"),
            max_size_bytes=size_bytes or None,
            max_entries=_count(environ, "TRTCACHE_MAX_ENTRIES") or None,
            disable=_flag(environ, "TRTCACHE_DISABLE"),
            readonly=_flag(environ, "TRTCACHE_READONLY"),
            recache=_flag(environ, "TRTCACHE_RECACHE"),
            forbid_build=_flag(environ, "TRTCACHE_FORBID_BUILD"),
            log=environ.get("TRTCACHE_LOG", ""),
            trust=_trust(environ),
            busy=ContentionPolicy.of(environ),
            direct=parse_direct(environ.get("TRTCACHE_DIRECT") or DEFAULT_DIRECT, "TRTCACHE_DIRECT"),
        )


def _directories(environ: Mapping[str, str], settings: Mapping[str, str]) -> tuple[Path, tuple[Path, ...]]:
    """Return the cache directory and the lower ones; ``settings`` are the environment merged over the file."""
    named, path = settings.get("TRTCACHE_DIR"), settings.get("TRTCACHE_PATH")
    if named and path:
        if bool(environ.get("TRTCACHE_DIR")) == bool(environ.get("TRTCACHE_PATH")):
            raise SettingsError("TRTCACHE_PATH", "TRTCACHE_DIR is set too, and both set the cache directory; unset one")
        path = environ.get("TRTCACHE_PATH")  # the environment wins over the file, for either variable
    if not path:
        return absolute(named, "TRTCACHE_DIR") if named else default_root(), ()
    upper, *lower = path.split(os.pathsep)
    root = absolute(upper, "TRTCACHE_PATH") if upper else default_root()
    return root, tuple(absolute(part, "TRTCACHE_PATH") for part in lower if part)


def _trust(environ: Mapping[str, str]) -> Trust:
    signing_key = environ.get("TRTCACHE_SIGNING_KEY")
    return Trust(
        required=parse_mode(environ.get("TRTCACHE_SIGNATURES", ""), "TRTCACHE_SIGNATURES"),
        keys=parse_keys(environ.get("TRTCACHE_TRUSTED_KEYS", ""), "TRTCACHE_TRUSTED_KEYS"),
        signing_key=absolute(signing_key, "TRTCACHE_SIGNING_KEY") if signing_key else None,
    )


def default_root() -> Path:
    """Return the default cache directory: ``$XDG_CACHE_HOME/trtcache``."""
    return cache_folder("trtcache")


def parse_direct(text: object, name: str) -> str:
    """Parse a mode of direct mode.

    Raises:
        SettingsError: it is invalid; the message names ``name``.
    """
    if text not in DIRECT_MODES:
        raise SettingsError(name, f"{text!r} is not one of {', '.join(DIRECT_MODES)}")
    return str(text)


def _count(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name, "").strip() or str(default)
    if not text.isdecimal():
        raise SettingsError(name, f"{text!r} is not a number, 0 or more")
    return int(text)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise SettingsError(name, f"{environ[name]!r} is not 1 or 0")
