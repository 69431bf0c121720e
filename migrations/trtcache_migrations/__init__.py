"""The migrations of a store's index, and the one function that applies them."""

from __future__ import annotations

import threading
from importlib import resources
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config

if TYPE_CHECKING:
    from sqlalchemy import Connection


_LOCK = threading.Lock()
"""Alembic's environment is one per process."""


def upgrade(connection: Connection) -> None:
    """Bring the index that ``connection`` is open on to the newest schema, inside the connection's transaction.

    Two threads may call it for two indexes: one waits for the other. The caller holds the index's lock.

    Raises:
        sqlalchemy.exc.DBAPIError: a statement failed; the transaction is to be rolled back.
    """
    config = Config()
    with _LOCK, resources.as_file(resources.files(__name__)) as scripts:
        config.set_main_option("script_location", str(scripts).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
