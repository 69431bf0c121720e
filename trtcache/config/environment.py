"""Configuration from the environment and the settings file ``trtcache.toml``, and logging by area.

The settings file is read from the user's own configuration directory only: one in a project or in a shared store could
make its author's keys trusted. ``TRTCACHE_LOG=lowering,keys`` logs these areas to standard error.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from pathlib import Path

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import absolute, atomic_write, cache_folder, config_folder
from trtcache.config.remotes import VARIABLE as REMOTE_VARIABLE
from trtcache.config.remotes import RemoteSettings, refuse_url
from trtcache.config.signing_keys import Trust, parse_keys, parse_mode
from trtcache.config.units import ContentionPolicy, Value, format_toml, parse_size, remove_toml_line, set_toml_line
from trtcache.errors import SettingsError, TorchForbiddenError, did_you_mean

DEFAULT_MAX_SIZE_BYTES = 20 * 10**9
DEFAULT_DIRECT = "off"  # docs/direct-mode.md says what is not compared
DIRECT_MODES = ("on", "verify", "off")
ON_MISS = ("build", "background")

_logger = logging.getLogger("trtcache.config")

_PREFIX = "TRTCACHE_"
_INTERNAL = frozenset({"TRTCACHE_FARM", "TRTCACHE_RUN", "TRTCACHE_TORTURE"})
"""Variables that ``trtcache run`` sets, and those of our own tests."""

VARIABLES = {
    "TRTCACHE_DIR": "the cache directory (default: trtcache in $XDG_CACHE_HOME or ~/.cache)",
    "TRTCACHE_PATH": "instead of TRTCACHE_DIR: the cache directory and read-only ones below it, as UPPER:LOWER:LOWER",
    "TRTCACHE_COPY_UP": "1: copy hits from directories below into the cache directory",
    "TRTCACHE_MAX_SIZE": "prune after a put that makes the cache larger than this (default: 20GB; 0: no limit)",
    "TRTCACHE_MAX_ENTRIES": "after a put, prune if trtcache ls lists more entries than this (default: 0: no limit)",
    "TRTCACHE_DISABLE": "1: neither read nor write the cache; always build",
    "TRTCACHE_READONLY": "1: take hits, write nothing",
    "TRTCACHE_RECACHE": "1: build although there is an entry, and replace it",
    "TRTCACHE_FORBID_BUILD": "1: a miss is an error (for deployments and tests that must not build)",
    "TRTCACHE_NO_TORCH": "1: load, infer and compile of a file raise an error instead of importing torch",
    "TRTCACHE_ON_BUSY": "while another process builds an entry: wait (default), build it too, or eager (run in torch)",
    "TRTCACHE_BUSY_TIMEOUT": "seconds to wait for it; then it is built (default: no limit; 480 in a distributed job)",
    "TRTCACHE_ON_MISS": "build (default), or background: run in torch while a worker process builds",
    "TRTCACHE_SIGNATURES": "require: use only entries signed by a trusted key; off: any (default: require if shared)",
    "TRTCACHE_TRUSTED_KEYS": "trusted public keys as NAME:HEX, separated by spaces or commas",
    "TRTCACHE_SIGNING_KEY": "path of the secret key that signs new entries",
    "TRTCACHE_REMOTE": "URLs of buckets or web folders, asked after all directories; ?mode=write uploads builds",
    "TRTCACHE_REMOTE_CONNECT_TIMEOUT": "seconds to connect to a remote (default: 0.3)",
    "TRTCACHE_REMOTE_TIMEOUT": "seconds to wait for the first byte of a remote's answer (default: 2)",
    "TRTCACHE_REMOTE_FLUSH": "seconds that unfinished uploads get at exit (default: 5)",
    "TRTCACHE_REMOTE_MIN_BUILD": "seconds of build time from which an entry is uploaded (default: 1)",
    "TRTCACHE_DIRECT": "on: skip the export of a known module; verify: export it and compare; off (default)",
    "TRTCACHE_CONFIG": "path of the settings file (default: trtcache/trtcache.toml in $XDG_CONFIG_HOME or ~/.config)",
    "TRTCACHE_QUIET": "1: no line on a terminal while compile builds (also silent in CI and in a pipe)",
    "TRTCACHE_LOG": (
        "areas to log to standard error, by commas: "
        "lowering, keys, store, remote, backends, runtime, cli, torch_compile"
    ),
}

_FLAGS = frozenset(
    f"{_PREFIX}{name}" for name in ("COPY_UP", "DISABLE", "READONLY", "RECACHE", "FORBID_BUILD", "NO_TORCH", "QUIET")
)
_SIGNATURES = "TRTCACHE_SIGNATURES"
LISTS = frozenset({REMOTE_VARIABLE, "TRTCACHE_TRUSTED_KEYS"})

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}

SETTINGS_FILE = "trtcache.toml"
_MAX_BYTES = 1 << 20
LOG_VARIABLE = "TRTCACHE_LOG"
AREAS: Mapping[str, tuple[str, ...]] = {
    "lowering": ("trtcache.lowering",),
    "keys": ("trtcache.keys", "trtcache.api", "trtcache.compiler", "trtcache.frontends"),
    "store": ("trtcache.store", "trtcache.cache", "trtcache.config"),
    "remote": ("trtcache.remote",),
    "backends": ("trtcache.backends",),
    "runtime": ("trtcache.runtime", "trtcache.bundle"),
    "cli": ("trtcache_cli",),
    "torch_compile": ("trtcache.integrations",),
}
"""Area -> its loggers."""


@frozen_dataclass
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
    no_torch: bool = False
    quiet: bool = False
    log: str = ""
    trust: Trust = field(default_factory=Trust)
    busy: ContentionPolicy = field(default_factory=ContentionPolicy)
    lower: tuple[Path, ...] = ()
    copy_up: bool = False
    direct: str = DEFAULT_DIRECT
    on_miss: str = "build"
    remotes: RemoteSettings = field(default_factory=RemoteSettings)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """Read the ``TRTCACHE_*`` variables, with ``trtcache.toml`` for those that are not set.

        Raises:
            SettingsError: a variable or a setting has an invalid value; the message names it.
        """
        warn_about_unknown_variables(
            frozenset(name for name in environ if name.startswith(_PREFIX) and name not in VARIABLES)
        )
        return cls.parse(environ, merge_settings(environ))

    @classmethod
    def parse(cls, environ: Mapping[str, str], settings: Mapping[str, str]) -> Config:
        """Parse ``settings``, which are the environment merged over the settings file.

        Raises:
            SettingsError: one has an invalid value; the message names it.
        """
        root, lower = _directories(environ, settings)
        entries = settings.get("TRTCACHE_MAX_ENTRIES", "").strip() or "0"
        if not entries.isdecimal() or len(entries) > 18:
            raise SettingsError("TRTCACHE_MAX_ENTRIES", f"{entries!r} is not a non-negative integer")
        signing_key = settings.get("TRTCACHE_SIGNING_KEY")
        trust = Trust(
            required=parse_mode(settings.get(_SIGNATURES, ""), "TRTCACHE_SIGNATURES"),
            keys=parse_keys(settings.get("TRTCACHE_TRUSTED_KEYS", ""), "TRTCACHE_TRUSTED_KEYS"),
            signing_key=absolute(signing_key, "TRTCACHE_SIGNING_KEY") if signing_key else None,
        )
        size_bytes = parse_size(settings.get("TRTCACHE_MAX_SIZE") or DEFAULT_MAX_SIZE_BYTES, "TRTCACHE_MAX_SIZE")
        return cls(
            root=root,
            lower=lower,
            copy_up=_flag(settings, "TRTCACHE_COPY_UP"),
            max_size_bytes=size_bytes or None,
            max_entries=int(entries) or None,
            disable=_flag(settings, "TRTCACHE_DISABLE"),
            readonly=_flag(settings, "TRTCACHE_READONLY"),
            recache=_flag(settings, "TRTCACHE_RECACHE"),
            forbid_build=_flag(settings, "TRTCACHE_FORBID_BUILD"),
            no_torch=_flag(settings, "TRTCACHE_NO_TORCH"),
            quiet=_flag(settings, "TRTCACHE_QUIET"),
            log=settings.get("TRTCACHE_LOG", ""),
            trust=trust,
            busy=ContentionPolicy.of(settings),
            direct=parse_choice(settings.get("TRTCACHE_DIRECT") or DEFAULT_DIRECT, DIRECT_MODES, "TRTCACHE_DIRECT"),
            on_miss=parse_choice(settings.get("TRTCACHE_ON_MISS") or "build", ON_MISS, "TRTCACHE_ON_MISS"),
            remotes=RemoteSettings.of(settings),
        )

    def values(self) -> dict[str, str | float | bool | None]:
        """Return the value of each variable but ``TRTCACHE_CONFIG``, None for no limit."""
        return {
            "TRTCACHE_DIR": str(self.root),
            "TRTCACHE_PATH": os.pathsep.join(map(str, (self.root, *self.lower))),
            "TRTCACHE_COPY_UP": self.copy_up,
            "TRTCACHE_MAX_SIZE": self.max_size_bytes,
            "TRTCACHE_MAX_ENTRIES": self.max_entries,
            "TRTCACHE_DISABLE": self.disable,
            "TRTCACHE_READONLY": self.readonly,
            "TRTCACHE_RECACHE": self.recache,
            "TRTCACHE_FORBID_BUILD": self.forbid_build,
            "TRTCACHE_NO_TORCH": self.no_torch,
            "TRTCACHE_ON_BUSY": self.busy.policy,
            "TRTCACHE_BUSY_TIMEOUT": self.busy.timeout_s,
            "TRTCACHE_ON_MISS": self.on_miss,
            "TRTCACHE_SIGNATURES": {None: "", True: "require", False: "off"}[self.trust.required],
            "TRTCACHE_TRUSTED_KEYS": " ".join(map(str, self.trust.keys)),
            "TRTCACHE_SIGNING_KEY": str(self.trust.signing_key or ""),
            "TRTCACHE_REMOTE": " ".join(url.url for url in self.remotes.urls),
            "TRTCACHE_REMOTE_CONNECT_TIMEOUT": self.remotes.connect_timeout_s,
            "TRTCACHE_REMOTE_TIMEOUT": self.remotes.timeout_s,
            "TRTCACHE_REMOTE_FLUSH": self.remotes.flush_s,
            "TRTCACHE_REMOTE_MIN_BUILD": self.remotes.min_build_s,
            "TRTCACHE_DIRECT": self.direct,
            "TRTCACHE_QUIET": self.quiet,
            "TRTCACHE_LOG": self.log,
        }

    def variables(self) -> dict[str, str]:
        """Return the environment variables for another process with this configuration, but for the rank of this one.

        Raises:
            SettingsError: a directory has a colon in its name, and there are several directories.
        """
        folders = list(map(str, (self.root, *self.lower)))
        if self.lower and any(os.pathsep in folder for folder in folders):
            raise SettingsError("TRTCACHE_PATH", f"a directory of {', '.join(folders)} has a colon in its name")
        values = self.values() | {"TRTCACHE_DIR" if self.lower else "TRTCACHE_PATH": ""}
        return {variable: format_value(variable, value) for variable, value in values.items()}


def format_value(variable: str, value: str | float | bool | None) -> str:
    """Return one of ``Config.values`` as the text of its variable."""
    if value is None:
        return "" if variable == "TRTCACHE_BUSY_TIMEOUT" else "0"
    return str(int(value) if isinstance(value, bool) else value)


@lru_cache(maxsize=1)  # a process reads its environment often: one warning until the names change
def warn_about_unknown_variables(names: frozenset[str]) -> None:
    """Warn about variables with our prefix that have no effect."""
    if not names - _INTERNAL:
        return
    import difflib  # 2 ms, needed for misspelt names only

    for name in sorted(names - _INTERNAL):
        known = [variable.removeprefix(_PREFIX) for variable in VARIABLES]
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
        hint = f"did you mean {_PREFIX}{near[0]}?" if near else "trtcache config lists those that have"
        _logger.warning("%s has no effect; %s", name, hint)


def _directories(environ: Mapping[str, str], settings: Mapping[str, str]) -> tuple[Path, tuple[Path, ...]]:
    """Return the cache directory and the lower ones; ``settings`` are the environment merged over the file."""
    named, path = settings.get("TRTCACHE_DIR"), settings.get("TRTCACHE_PATH")
    for text in filter(None, (path, named)):  # a path is split at colons, which URLs have
        for part in re.split(r":(?!//)", text):
            refuse_url(part, "TRTCACHE_PATH" if text == path else "TRTCACHE_DIR")
    if named and path:
        if bool(environ.get("TRTCACHE_DIR")) == bool(environ.get("TRTCACHE_PATH")):
            raise SettingsError("TRTCACHE_PATH", "TRTCACHE_DIR is set too, and both set the cache directory; unset one")
        path = environ.get("TRTCACHE_PATH")  # the environment wins over the file, for either variable
    if not path:
        return absolute(named, "TRTCACHE_DIR") if named else default_root(), ()
    upper, *lower = path.split(os.pathsep)
    root = absolute(upper, "TRTCACHE_PATH") if upper else default_root()
    return root, tuple(absolute(part, "TRTCACHE_PATH") for part in lower if part)


def default_root() -> Path:
    """Return the default cache directory: ``$XDG_CACHE_HOME/trtcache``."""
    return cache_folder("trtcache")


def parse_choice(text: object, choices: tuple[str, ...], name: str) -> str:
    """Parse a setting that has one of a few values.

    Raises:
        SettingsError: it is invalid; the message names ``name``.
    """
    if text not in choices:
        raise SettingsError(name, f"{text!r} is not one of {', '.join(choices)}")
    return str(text)


def _flag(settings: Mapping[str, str], name: str) -> bool:
    text = settings.get(name, "").strip().lower()
    if text not in _TRUE | _FALSE:
        raise SettingsError(name, f"{settings[name]!r} is not 1 or 0")
    return text in _TRUE


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the settings file: ``TRTCACHE_CONFIG``, or in the user's configuration directory."""
    named = environ.get("TRTCACHE_CONFIG")
    return absolute(named, "TRTCACHE_CONFIG") if named else config_folder("trtcache") / SETTINGS_FILE


def setting_name(variable: str) -> str:
    """Return the name of a variable's setting in the file: ``TRTCACHE_MAX_SIZE`` is ``max-size``."""
    if variable == REMOTE_VARIABLE:
        return "remotes"  # a list
    return variable.removeprefix("TRTCACHE_").lower().replace("_", "-")


def read_settings(path: Path) -> dict[str, str]:
    """Return the file's settings as text by variable; empty if the file does not exist.

    Raises:
        SettingsError: it is not TOML, has an unknown setting, or other users can write to it.
    """
    text = _read(path)
    if text is None:
        return {}
    names = {setting_name(variable): variable for variable in VARIABLES if variable != "TRTCACHE_CONFIG"}
    settings = {}
    for name, value in _parse(text, path).items():
        if name not in names:
            raise SettingsError(f"{path}: {name}", did_you_mean(name, list(names)))
        settings[names[name]] = _text_of(value, names[name], f"{path}: {name}")
    return settings


def _text_of(value: object, variable: str, where: str) -> str:
    """Return a value of the file as the text that the variable would have.

    Raises:
        SettingsError: the setting does not take this type; the message starts with ``where``.
    """
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if variable not in LISTS:
            raise SettingsError(where, f"{value!r} is a list, and this setting takes one value")
        return " ".join(value)
    if isinstance(value, bool):
        if variable not in _FLAGS:
            raise SettingsError(
                where, f"{str(value).lower()} is a boolean, and this setting takes a string or a number"
            )
        return str(int(value))
    if isinstance(value, (str, int, float)):
        return str(value)
    raise SettingsError(where, f"{value!r} is not a string, an integer, a float, a boolean, or a list of strings")


@contextmanager
def lock_settings(path: Path) -> Iterator[None]:
    """Hold the lock of the settings file while it is read, changed and written; other processes wait for it.

    Raises:
        SettingsError: it is not a file.
        OSError: its folder cannot be written, or the file system has no locks.
    """
    import fcntl  # only needed to change settings

    path = path.resolve()
    if path.exists() and not path.is_file():  # such as /dev/null
        raise SettingsError(str(path), "it is not a file")
    make_folders(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_setting(path: Path, name: str, value: Value) -> None:
    """Set one setting in the file, and keep the rest unchanged, including comments.

    Raises:
        SettingsError: the file is not TOML, or its formatting requires a change by hand.
        OSError: it cannot be written.
    """
    text = _read(path) or ""
    changed = set_toml_line(text, name, value)
    if _parse_toml(changed) != {**_parse(text, path), name: value}:
        what = f"its formatting is not supported; set it by hand: {name} = {format_toml(value)}"
        raise SettingsError(f"{path}: {name}", what)
    _write(path, changed)


def remove_setting(path: Path, name: str) -> bool:
    """Remove one setting from the file, and keep the rest unchanged; return whether it was there.

    Raises:
        SettingsError: the file is not TOML, or its formatting requires a change by hand.
        OSError: it cannot be written.
    """
    text = _read(path) or ""
    before = _parse(text, path)
    if name not in before:
        return False
    changed = remove_toml_line(text, name)
    if _parse_toml(changed) != {key: value for key, value in before.items() if key != name}:
        raise SettingsError(f"{path}: {name}", "its formatting is not supported; remove it by hand")
    _write(path, changed)
    return True


def _write(path: Path, text: str) -> None:
    """Write the settings file atomically; a link to it stays a link, and a file for all users one for all."""
    path = path.resolve()
    make_folders(path.parent)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    with atomic_write(path) as temporary:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, mode)
            file.write(text)
            file.flush()
            os.fsync(fd)


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(str(path), f"it cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(str(path), "it is not a file")
        private_group = status.st_gid == status.st_uid == os.geteuid() != 0  # a user's private group, and umask 002
        others = 0o002 if private_group else 0o022
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & others:
            raise SettingsError(str(path), f"other users can write to it; run: chmod go-w {path}")
        if status.st_size > _MAX_BYTES:
            raise SettingsError(str(path), "it is larger than 1 MiB")
        return os.read(fd, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), "it is not UTF-8 text") from error
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """Create a directory for settings or keys, and its missing parents, for this user alone."""
    for missing in reversed([folder, *folder.parents]):  # mkdir(parents=True) uses the umask for parents
        if not missing.exists():
            missing.mkdir(mode=0o700, exist_ok=True)


def _parse(text: str, path: Path) -> dict[str, object]:
    settings = _parse_toml(text)
    if settings is None:
        raise SettingsError(str(path), "it is not valid TOML")
    return settings


def _parse_toml(text: str) -> dict[str, object] | None:
    import tomllib  # only needed if the file exists

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def merge_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the file, overridden by the environment's variables, of which empty ones are defaults.

    An empty ``TRTCACHE_SIGNATURES``, as templates of containers make it, does not override a file that sets it.

    Raises:
        SettingsError: the file is not TOML, has an unknown setting, is writable by other users, or does not exist
            or cannot be reached although TRTCACHE_CONFIG names it.
    """
    path, is_named = settings_path(environ), bool(environ.get("TRTCACHE_CONFIG"))
    try:
        path.stat()
    except PermissionError as error:  # a folder that this user may not search, such as a HOME of another user
        if is_named:
            raise SettingsError("TRTCACHE_CONFIG", f"{path} cannot be read: {error.strerror}") from error
        _warn_of_unreachable(path)
        return dict(environ)
    except OSError as error:
        if is_named:
            raise SettingsError("TRTCACHE_CONFIG", f"{path} does not exist") from error
    settings = read_settings(path)
    found = {**settings, **environ}
    if not found.get(_SIGNATURES, "").strip() and _SIGNATURES in settings:
        found[_SIGNATURES] = settings[_SIGNATURES]
    return found


@lru_cache(maxsize=1)  # one warning in a process, which reads its environment often
def _warn_of_unreachable(path: Path) -> None:
    _logger.warning("%s cannot be reached (its folder is closed to this user); continuing without settings", path)


def parse_areas(text: str) -> list[str]:
    """Parse a comma-separated list of areas to log.

    Raises:
        SettingsError: an area is unknown.
    """
    areas = [area for part in text.split(",") if (area := part.strip())]
    for area in areas:
        if area not in AREAS:
            raise SettingsError(LOG_VARIABLE, f"{area!r}: {did_you_mean(area, list(AREAS))}")
    return areas


def start_logging(environ: Mapping[str, str]) -> None:
    """Set the loggers of the areas in ``TRTCACHE_LOG`` to DEBUG; others are unchanged.

    They print to standard error if no handler is configured, so a program with its own handlers keeps those.

    Raises:
        SettingsError: the variable names an unknown area.
    """
    for area in parse_areas(environ.get(LOG_VARIABLE, "")):
        for name in AREAS[area]:
            logger = logging.getLogger(name)
            logger.setLevel(logging.DEBUG)
            if not logger.hasHandlers():
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
                logger.addHandler(handler)


def installed_version() -> str:
    """Return the installed version, or ``0+source`` for a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # 10 ms, which a hit does not need

    try:
        return version("trtcache")
    except PackageNotFoundError:
        return "0+source"


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it. Namespace directories do not count."""
    from importlib.util import find_spec

    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def require_torch_allowed(name: str, why: str) -> None:
    """Check that torch is imported or may be. ``why`` says why ``name`` needs it.

    Raises:
        TorchForbiddenError: ``TRTCACHE_NO_TORCH=1``, and it is not imported.
        ModuleNotFoundError: it is not installed.
    """
    if "torch" in sys.modules:
        return
    if Config.from_environ(os.environ).no_torch:
        raise TorchForbiddenError(name, why)
    if not is_installed("torch"):
        raise ModuleNotFoundError(f"{name} needs torch: pip install 'trtcache[torch]'", name="torch")
