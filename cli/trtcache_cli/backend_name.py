"""The option ``--backend``: a backend's name, checked before torch is imported, with shell completion."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from trtcache.config.backend_settings import BUILT_IN, backend_table
from trtcache.errors import did_you_mean


class BackendName(click.ParamType[str]):
    """The name of a backend, or ``auto``."""

    name = "backend"

    def __init__(self, *, takes_auto: bool = True) -> None:
        """Accept the name of any backend that is installed or built in, and ``auto`` unless ``takes_auto`` is false."""
        self._auto = ("auto",) if takes_auto else ()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name if there is such a backend, installed or not."""
        name = str(value)
        if name not in (*self._auto, *BUILT_IN) and name not in backend_table():
            self.fail(f"{name!r}: {did_you_mean(name, [*self._auto, *backend_table()])}", param, ctx)
        return name

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        param: click.Parameter,  # noqa: ARG002  # click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the backends that start with the typed text."""
        return [CompletionItem(name) for name in (*self._auto, *backend_table()) if name.startswith(incomplete)]


backend_option = partial(click.option, "--backend", type=BackendName(), default="auto", show_default=True)
"""The option of a command that takes any backend; it gets its help."""
