"""A version of the index after the newest one: code that has it meets an index that has to be migrated."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config

import trtcache_migrations
from trtcache.store import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_SCRIPTS = Path(trtcache_migrations.__path__[0])
_NEWER = Path(__file__).parents[1] / "data" / "migrations"


@contextmanager
def schema(*, newer: bool) -> Iterator[None]:
    """Have code of that version, if it is to be ``newer``, in this process and in children that it forks meanwhile."""
    if not newer:
        yield
        return
    versions, upgrade = record.VERSIONS, trtcache_migrations.upgrade
    record.VERSIONS = (*versions, "9001")  # type: ignore[assignment]
    trtcache_migrations.upgrade = _upgraded
    try:
        yield
    finally:
        record.VERSIONS, trtcache_migrations.upgrade = versions, upgrade


def _upgraded(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{_SCRIPTS / 'versions'}\n{_NEWER}")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
