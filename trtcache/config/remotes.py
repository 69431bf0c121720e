"""Remotes: the URLs of ``TRTCACHE_REMOTE``, and how long they may take. Nothing here opens a connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import parse_duration, parse_seconds
from trtcache.errors import SettingsError, did_you_mean

VARIABLE: Final = "TRTCACHE_REMOTE"
LIFETIME_S: Final = 30 * 86400.0

PARAMETERS: Final = {
    "s3": ("mode", "lifetime", "claims", "insecure", "endpoint", "region"),
    "gs": ("mode", "lifetime", "claims", "insecure", "endpoint"),
    "az": ("mode", "lifetime", "claims", "insecure", "endpoint", "account"),
    "http": ("mode", "lifetime", "insecure"),
    "https": ("mode", "lifetime"),
}
"""Scheme -> its parameters."""

_MODES = ("read", "write")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_IPV6 = re.compile(r"[0-9a-f:]*:[0-9a-f:.]*")
_PREFIX = re.compile(r"(?!\.)[A-Za-z0-9._=-]{1,200}")


@frozen_dataclass
class RemoteUrl:
    """A bucket and a prefix in it, or a folder of a web server.

    Attributes:
        text: the URL without its parameters, for messages; it has no credentials.
        scheme: ``s3``, ``gs``, ``az``, ``http`` or ``https``.
        place: the bucket, the container, or the server's host and port.
        prefix: what names of objects start with; empty or without slashes at its ends.
        endpoint: the server's URL, empty for that of the provider.
        region, account: S3's region and Azure's account, empty for those of the environment.
        writable: whether builds are uploaded.
        claims: whether hosts agree through the remote on which of them builds an entry.
        lifetime_s: the age at which the bucket's rules may delete an entry; used ones are uploaded again at half of it.
    """

    text: str
    scheme: str
    place: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    account: str = ""
    writable: bool = False
    claims: bool = False
    lifetime_s: float = LIFETIME_S

    @classmethod
    def parse(cls, url: str, where: str = VARIABLE) -> RemoteUrl:
        """Parse one URL.

        Raises:
            SettingsError: it is not the URL of a remote; the message names ``where`` and never has a password in it.
        """
        scheme, separator, _ = url.partition("://")
        if not separator or scheme not in PARAMETERS:
            known = ", ".join(f"{name}://" for name in PARAMETERS)
            several = ", separated by spaces" if where == VARIABLE else ""
            what = f"{scheme}://" if separator else repr(_without_secrets(url))
            raise SettingsError(where, f"{what} is not the URL of a remote; use {known}{several}")
        from urllib.parse import parse_qsl, urlsplit  # only needed where a remote is set

        try:
            parts = urlsplit(url)
            port = parts.port
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            # The error quotes what may be a password.
            raise SettingsError(where, f"a {scheme}:// URL is malformed: its port, or a parameter") from None
        if parts.username is not None or parts.password is not None:
            how = "use the environment, a profile, or the machine's role"
            raise SettingsError(where, f"a {scheme}:// URL has credentials in it; {how}")
        options = _parameters(scheme, given, where)
        segments = [segment for segment in parts.path.split("/") if segment]
        if parts.fragment or not all(map(_PREFIX.fullmatch, segments)):
            raise SettingsError(
                where, f"{_without_secrets(url)!r}: a prefix has letters, digits and ._=- between slashes"
            )
        is_web = scheme in ("http", "https")
        host = parts.hostname or ""
        is_valid = _BUCKET.fullmatch(host) or (is_web and _IPV6.fullmatch(host))  # urlsplit has checked the address
        if not is_valid or (port is not None and not is_web):
            raise SettingsError(where, f"{_without_secrets(url)!r} does not name a {'host' if is_web else 'bucket'}")
        web = f"{scheme}://{parts.netloc}" if is_web else options.get("endpoint", "")
        _check_transport(web, options, where)
        place, prefix = parts.netloc, "/".join(segments)
        text = f"{scheme}://{place}" + (f"/{prefix}" if prefix else "")
        rest = {name: options.get(name, "") for name in ("endpoint", "region", "account")}
        return cls(
            text,
            scheme,
            place,
            prefix,
            writable=options.get("mode") == "write",
            claims=options.get("claims") == "1",
            lifetime_s=parse_duration(options.get("lifetime", "30d"), f"lifetime in {where}"),
            **rest,
        )

    @property
    def url(self) -> str:
        """The URL with its parameters, but for those with their default values, as ``parse`` takes it."""
        from urllib.parse import urlencode  # only needed for a worker process and 'trtcache config'

        given = {
            "mode": "write" if self.writable else "",
            "claims": "1" if self.claims else "",
            "insecure": "1" if self.is_plain_http else "",
            "lifetime": "" if self.lifetime_s == LIFETIME_S else _seconds(self.lifetime_s),
            "endpoint": self.endpoint,
            "region": self.region,
            "account": self.account,
        }
        known = PARAMETERS[self.scheme]
        parameters = urlencode({name: text for name, text in given.items() if text and name in known}, safe=":/[]")
        return f"{self.text}?{parameters}" if parameters else self.text

    @property
    def label(self) -> str:
        """The beginning of ``text``, for events, which have room for a reason after it."""
        return self.text[:400]

    def renewal_ns(self, now_ns: int) -> int:
        """Return a time: objects in use that were uploaded before it are uploaded again. 0 if none are."""
        return now_ns - int(self.lifetime_s / 2 * 1e9) if self.lifetime_s else 0

    @property
    def is_plain_http(self) -> bool:
        """Whether requests are not encrypted."""
        return self.scheme == "http" or self.endpoint.startswith("http://")


@frozen_dataclass
class RemoteSettings:
    """The remotes in the order in which they are asked, and what they may cost.

    ``timeout_s`` is the limit up to the first byte of an answer, ``flush_s`` the time that uploads get at exit, and
    ``min_build_s`` the build time from which an entry is uploaded.
    """

    urls: tuple[RemoteUrl, ...] = ()
    connect_timeout_s: float = 0.3
    timeout_s: float = 2.0
    flush_s: float = 5.0
    min_build_s: float = 1.0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> RemoteSettings:
        """Read ``TRTCACHE_REMOTE`` and its limits.

        Raises:
            SettingsError: one is invalid.
        """
        names = ("CONNECT_TIMEOUT", "TIMEOUT", "FLUSH", "MIN_BUILD")
        variables = {f"{name.lower()}_s": f"{VARIABLE}_{name}" for name in names}
        limits = {
            field: parse_seconds(text, variable)
            for field, variable in variables.items()
            if (text := environ.get(variable, "").strip())
        }
        return cls(parse_remotes(environ.get(VARIABLE, "").split()), **limits)

    def readonly(self) -> RemoteSettings:
        """Return the same remotes without uploads to them."""
        return replace(self, urls=tuple(replace(url, writable=False) for url in self.urls))

    @property
    def target(self) -> RemoteUrl | None:
        """The remote that builds are uploaded to: the first with ``mode=write``."""
        return next((url for url in self.urls if url.writable), None)


def parse_remotes(urls: Iterable[str], where: str = VARIABLE) -> tuple[RemoteUrl, ...]:
    """Parse several URLs.

    Raises:
        SettingsError: it is a single text, or one is not the URL of a remote.
    """
    if isinstance(urls, str):
        raise SettingsError(where, "expected a list of URLs, got a single text")
    found = tuple(urls)
    if wrong := [url for url in found if not isinstance(url, str)]:
        raise SettingsError(where, f"expected URLs, got {type(wrong[0]).__name__}")
    return tuple(RemoteUrl.parse(url, where) for url in found)


def _without_secrets(url: str) -> str:
    """Return the part of a URL that cannot be a password or a token, for messages."""
    return re.split(r"[?#]", url, maxsplit=1)[0].rpartition("@")[2]


def refuse_url(path: object, where: str) -> None:
    """Reject a URL in place of a directory.

    Raises:
        SettingsError: it starts as a URL does; the message says where remotes are set.
    """
    if isinstance(path, str) and re.match(r"[a-z0-9]+://", path):
        scheme = path.partition("://")[0]
        why = f"{scheme}:// is a URL and not a directory; a remote is set by TRTCACHE_REMOTE or Cache(remote=[URL])"
        raise SettingsError(where, why)


def _parameters(scheme: str, given: list[tuple[str, str]], where: str) -> dict[str, str]:
    known, options = PARAMETERS[scheme], dict(given)
    for name in options:
        if name not in known:
            raise SettingsError(where, f"parameter {name!r} of {scheme}://: {did_you_mean(name, list(known))}")
    if options.get("mode", "read") not in _MODES:
        raise SettingsError(where, f"mode {options['mode']!r}: {did_you_mean(options['mode'], list(_MODES))}")
    for name in ("insecure", "claims"):
        if options.get(name, "0") not in ("0", "1"):
            raise SettingsError(where, f"{name} is 1 or 0, not {options[name]!r}")
    if options.get("claims") == "1" and options.get("mode") != "write":
        raise SettingsError(where, "claims=1 is for hosts that upload what they build; add mode=write")
    return options


def _check_transport(web: str, options: Mapping[str, str], where: str) -> None:
    """Reject a server that is asked without encryption, and an endpoint that is not the plain URL of a server."""
    if not web:
        return
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(web)
        host = parts.hostname or ""
    except ValueError:
        raise SettingsError(where, "its endpoint is malformed") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.query:
        raise SettingsError(where, "an endpoint is http:// or https:// with a host, without credentials and parameters")
    if parts.scheme == "http" and not _LOOPBACK.fullmatch(host) and options.get("insecure") != "1":
        why = "anyone on the way can read entries and credentials"
        raise SettingsError(where, f"http://{host} is not encrypted: {why}; use https://, or add insecure=1")


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.0f}s" if duration_s.is_integer() else f"{duration_s!r}s"
