"""Arguments that name a directory or the URL of a remote, with shell completion, and opening a remote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from trtcache.config.remotes import RemoteUrl
from trtcache.errors import SettingsError, TrtcacheError
from trtcache_cli.session import Session

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.remote.entries import RemoteEntries


class UrlType(click.ParamType[RemoteUrl]):
    """The URL of a remote: ``s3://bucket/prefix``."""

    name = "url"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> RemoteUrl:
        """Parse the URL.

        Raises:
            click.BadParameter: it is not the URL of a remote.
        """
        if isinstance(value, RemoteUrl):
            return value
        if not is_url(value):
            self.fail("it is not a URL such as s3://bucket/prefix; a directory is given with --cache-dir", param, ctx)
        try:
            return RemoteUrl.parse(str(value), "URL")
        except SettingsError as error:
            self.fail(error.why if error.name == "URL" else str(error), param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002  # click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the configured remotes that start with the typed text."""
        try:
            urls = ctx.ensure_object(Session).config().remotes.urls
        except TrtcacheError:
            return []
        return [CompletionItem(url.text) for url in urls if url.text.startswith(incomplete)]


class PlaceType(click.Path):
    """A directory, or the URL of a remote."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path | RemoteUrl:  # type: ignore[override]  # or a URL
        """Parse a URL if it looks like one.

        Raises:
            click.BadParameter: it is neither.
        """
        if isinstance(value, RemoteUrl) or is_url(value):
            return UrlType().convert(value, param, ctx)
        found = super().convert(str(value), param, ctx)
        assert isinstance(found, Path)  # noqa: S101  # path_type
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the configured remotes, or have the shell complete directories; both if nothing is typed yet."""
        urls = UrlType().shell_complete(ctx, param, incomplete)
        return urls if urls and incomplete else [*urls, *super().shell_complete(ctx, param, incomplete)]


def is_url(value: object) -> bool:
    """Return whether an argument is a URL and not a path."""
    return "://" in str(value)


def open_remote(config: Config, url: RemoteUrl, *, copies: bool = False) -> RemoteEntries:
    """Open a remote for a command.

    A URL without endpoint, region and account takes them from the first URL of its bucket in ``TRTCACHE_REMOTE``.

    Raises:
        RemoteError: obstore is not installed or refuses the configuration; for a command that ``copies``, no key is
            trusted, or the request for the remote's format failed.
        FormatVersionError: with ``copies``, it has a newer layout.
    """
    from trtcache.remote.entries import RemoteEntries

    if not (url.endpoint or url.region or url.account):
        same = (known for known in config.remotes.urls if (known.scheme, known.place) == (url.scheme, url.place))
        if known := next(same, None):
            url = replace(url, endpoint=known.endpoint, region=known.region, account=known.account)
    remote = RemoteEntries(url, config.remotes, config.trust)
    if copies:
        remote.require_trust()
        remote.check_format()
    return remote


def refuse_options(url: RemoteUrl, **given: object) -> None:
    """Reject options that are for directories only.

    Raises:
        click.UsageError: one of ``given`` is set; the message names it.
    """
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is for directories, and {url.text} is a remote")
