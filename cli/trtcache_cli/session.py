"""Shared by all commands: ``--json`` and ``--cache-dir``, the configuration, and opening the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from trtcache.config.environment import Config
from trtcache.errors import NotAStoreError, ReadOnlyError, UnusableEntryError
from trtcache.store.root import is_store

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.digests import CacheKey
    from trtcache.store.contract import Entry
    from trtcache.store.disk import DiskStore
    from trtcache.store.layers import Layers

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class Session:
    """Options of every command, filled in by click while it parses."""

    as_json: bool = False
    cache_dir: Path | None = None

    def config(self) -> Config:
        """Return the configuration from the environment, overridden by ``--cache-dir``."""
        config = Config.from_environ(os.environ)
        return config if self.cache_dir is None else replace(config, root=self.cache_dir.absolute(), lower=())

    def cache(self) -> Cache:
        """Open the cache, for a command that builds or compiles. The directory of the settings is created if needed."""
        from trtcache.cache import Cache

        config = self.config()
        self._require_cache_dir(config)
        return Cache(config=config)

    def store(self) -> DiskStore:
        """Open the store for reading. A directory that is not yet a store is treated as empty, and not created."""
        config = self.config()
        return self._open(config, readonly=config.readonly or not is_store(config.root))

    def layers(self) -> Layers:
        """Open the store and its lower layers for reading."""
        from trtcache.store.layers import Layers

        return Layers.below(self.store(), self.config())

    def writable_store(self, action: str) -> DiskStore:
        """Open the store for writing.

        Raises:
            ReadOnlyError: it cannot be written; the message names ``action``.
        """
        config = self.config()
        store = self._open(config, readonly=config.readonly)
        if not store.writable:
            raise ReadOnlyError(str(store.root), action)
        return store

    def _open(self, config: Config, *, readonly: bool) -> DiskStore:
        from trtcache.store.disk import DiskStore

        self._require_cache_dir(config)
        return DiskStore.open(config.root, readonly=readonly, trust=config.trust)

    def _require_cache_dir(self, config: Config) -> None:
        if self.cache_dir is not None and not (is_store(config.root) or config.root.exists()):
            raise NotAStoreError(str(config.root), "the directory does not exist")


def require_entry(layers: Layers, key: CacheKey) -> Entry:
    """Return the entry of a key in one of the layers.

    Raises:
        UnusableEntryError: it cannot be used; the message says why.
    """
    from trtcache.store.contract import Miss

    found = layers.get(key)
    if isinstance(found, Miss):
        raise UnusableEntryError(key.digest, found.reason)
    return found


filter_option = click.option(
    "filters", "-f", "--filter", multiple=True, metavar="CONDITION", help="Only entries that match. Repeatable."
)
cache_dir_option = partial(
    click.option,
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Use this cache directory instead of TRTCACHE_DIR or the default.",
)


def environment_of_child(folder: Path) -> dict[str, str]:
    """Return this environment without the user's settings of trtcache, variables and file, for a child process.

    Args:
        folder: a temporary folder, which gets an empty settings file and Inductor's cache.
    """
    settings = folder / "trtcache.toml"
    settings.touch(mode=0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRTCACHE_")}
    kept |= {"TRTCACHE_CONFIG": str(settings), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    # Threads that spin while waiting lose whole time slices on a busy machine: a first call of 100 ms took 660 ms on
    # 2 cores at a load of 3.
    return {"OMP_WAIT_POLICY": "passive", **kept, "PYTHONWARNINGS": "ignore"}


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: example command lines."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def session_options(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Add ``--json`` and ``--cache-dir`` to a command, and pass it the session that has them."""
    as_json = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_as_json, help="Print JSON on standard output."
    )
    cache_dir = cache_dir_option(expose_value=False, is_eager=True, callback=_set_cache_dir)
    return as_json(cache_dir(click.make_pass_decorator(Session, ensure=True)(function)))


def _set_as_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Session).as_json |= value  # also given to the group of a subcommand


def _set_cache_dir(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    session = ctx.ensure_object(Session)
    session.cache_dir = value or session.cache_dir
