"""URLs of remotes: what they mean, and one clear error for each that is not one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.remotes import RemoteSettings, RemoteUrl, parse_remotes
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b", RemoteUrl("s3://b", "s3", "b")),
        ("s3://b/ci//main/", RemoteUrl("s3://b/ci/main", "s3", "b", "ci/main")),
        ("s3://b/p?region=eu-1&mode=write", RemoteUrl("s3://b/p", "s3", "b", "p", region="eu-1", writable=True)),
        (
            "s3://b/p?endpoint=http://127.0.0.1:9000&mode=read",
            RemoteUrl("s3://b/p", "s3", "b", "p", endpoint="http://127.0.0.1:9000"),
        ),
        (
            "s3://b/p?endpoint=http://farm:9000&insecure=1",
            RemoteUrl("s3://b/p", "s3", "b", "p", endpoint="http://farm:9000"),
        ),
        (
            "s3://b/p?mode=write&claims=1&lifetime=90d",
            RemoteUrl("s3://b/p", "s3", "b", "p", writable=True, claims=True, lifetime_s=90 * 86400.0),
        ),
        ("gs://b/p", RemoteUrl("gs://b/p", "gs", "b", "p")),
        ("az://c/p?account=a", RemoteUrl("az://c/p", "az", "c", "p", account="a")),
        ("https://host:8443/cache", RemoteUrl("https://host:8443/cache", "https", "host:8443", "cache")),
        ("http://localhost:1/c", RemoteUrl("http://localhost:1/c", "http", "localhost:1", "c")),
        ("http://[::1]:9000/e", RemoteUrl("http://[::1]:9000/e", "http", "[::1]:9000", "e")),
    ],
)
def test_a_url_is_parsed(url: str, expected: RemoteUrl) -> None:
    """Empty segments are left out, and parameters are no part of the shown URL."""
    assert RemoteUrl.parse(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/srv/engines", "'/srv/engines' is not the URL of a remote; use s3://"),
        ("ftp://host/x", "ftp:// is not the URL of a remote"),
        ("s3://", "does not name a bucket"),
        ("s3://b:9000/x", "does not name a bucket"),
        ("https:///x", "does not name a host"),
        ("s3://b/../x", "a prefix has letters"),
        ("s3://b/x y", "a prefix has letters"),
        ("s3://b/x#y", "a prefix has letters"),
        ("s3://b?mode=rw", "mode 'rw': unknown; known: read, write"),
        ("s3://b?regoin=x", "parameter 'regoin' of s3://: unknown; did you mean 'region'"),
        ("gs://b?region=x", "parameter 'region' of gs://"),
        ("s3://b?mode", "is malformed"),
        ("s3://b?insecure=yes", "insecure is 1 or 0"),
        ("s3://b?mode=write&claims=yes", "claims is 1 or 0"),
        ("s3://b?claims=1", "add mode=write"),
        ("https://b/x?mode=write&claims=1", "parameter 'claims' of https://"),
        ("s3://b?lifetime=30", "has no unit"),
        ("http://farm/c", "http://farm is not encrypted"),
        ("http://localhost.evil.org/c", "is not encrypted"),
        ("s3://b?endpoint=http://farm:9000", "http://farm is not encrypted"),
        ("s3://b?endpoint=farm:9000", "an endpoint is http:// or https://"),
        ("s3://b?endpoint=https://u:p@farm", "an endpoint is http:// or https://"),
        ("https://host:port/x", "is malformed"),
        ("http://[fd00::1]:9000/e", "http://fd00::1 is not encrypted"),
        ("s3://[::1]/e", "does not name a bucket"),
    ],
)
def test_a_wrong_url_is_one_clear_error(url: str, message: str) -> None:
    """The error names the setting and says what is expected."""
    with pytest.raises(SettingsError, match="TRTCACHE_REMOTE") as caught:
        parse_remotes([url])
    assert message in str(caught.value)


@pytest.mark.parametrize("url", ["https://me:hunter2@host/c", "s3://me:hunter2@bucket/c", "s3://AKIA@bucket"])
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    """They would be in logs and process lists."""
    with pytest.raises(SettingsError, match="has credentials in it") as caught:
        RemoteUrl.parse(url)
    assert "hunter2" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https//me:hunter2@host/c",
        "me:hunter2@host",
        "s3://AKIA:hunter2/main",
        "s3://bucket/a~b?endpoint=https://me:hunter2@host",
        "s3://bucket/main?endpoint=https://me:hunter2@host",
        "s3://bucket/main#hunter2",
        "az://container/a~b?sig=hunter2",
        "https://host/a~b?hunter2",
    ],
)
def test_no_error_shows_what_may_be_a_password(url: str) -> None:
    """Whatever is wrong with a URL, the parts that can hold one are left out, and the causes of an error too."""
    for parse in (lambda: RemoteUrl.parse(url), lambda: parse_remotes(url), lambda: parse_remotes([url])):
        with pytest.raises(SettingsError) as caught:
            parse()
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_the_environment_and_the_file_set_remotes(tmp_path: Path) -> None:
    """A list in the file, and the environment before it: an empty variable switches the file's remotes off."""
    path = tmp_path / "trtcache.toml"
    path.write_text('remotes = ["s3://a", "s3://b/p?mode=write"]\nremote-timeout = "1.5"\n')
    path.chmod(0o600)
    found = Config.from_environ({"TRTCACHE_CONFIG": str(path)}).remotes
    assert [url.text for url in found.urls] == ["s3://a", "s3://b/p"]
    assert found.timeout_s == 1.5
    assert found.target is not None
    assert found.target.text == "s3://b/p"
    assert Config.from_environ({"TRTCACHE_CONFIG": str(path), "TRTCACHE_REMOTE": ""}).remotes.urls == ()
    with pytest.raises(SettingsError, match="TRTCACHE_REMOTE_FLUSH"):
        Config.from_environ({"TRTCACHE_REMOTE_FLUSH": "soon"})
    assert Config.from_environ({}).remotes == RemoteSettings()


@pytest.mark.parametrize(
    "environ",
    [
        {"TRTCACHE_PATH": "/srv/a:s3://bucket/main"},
        {"TRTCACHE_PATH": "s3://bucket/main?endpoint=http://127.0.0.1:9000"},
        {"TRTCACHE_DIR": "s3://bucket/main"},
    ],
)
def test_a_url_in_place_of_a_directory_names_the_right_variable(environ: dict[str, str]) -> None:
    """A path is split at colons, which URLs have: the error comes before that."""
    (name,) = environ
    with pytest.raises(SettingsError, match=f"{name}.*TRTCACHE_REMOTE"):
        Config.from_environ(environ)


def test_a_cache_takes_remotes_as_a_list(tmp_path: Path) -> None:
    """They replace those of the environment; nothing is asked before the first miss."""
    cache = Cache(tmp_path, remote=["s3://bucket/main"])
    assert [url.text for url in cache.config.remotes.urls] == ["s3://bucket/main"]
    with pytest.raises(SettingsError, match="expected a list of URLs"):
        Cache(tmp_path, remote="s3://bucket/main")
    with pytest.raises(SettingsError, match="expected URLs"):
        Cache(tmp_path, remote=[tmp_path])  # type: ignore[list-item]
    with pytest.raises(SettingsError, match=r"Cache\(remote="):
        Cache("s3://bucket/main")
