"""The keys of key aliases, and what they depend on: digests of code, and torch's state as it begins."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from trtcache.digests import CacheKey, Digest, file_bytes, hash_bytes

if TYPE_CHECKING:
    from trtcache.backends.protocol import Backend


_OTHER = frozenset({"bundle", "integrations", "runtime", "store"})
"""Packages that no cache key depends on. All others are digested, so that a new one cannot be forgotten."""


@functools.cache
def code_digest() -> Digest:
    """Return the digest of this package's code without ``_OTHER``: after a change to it no older alias is used."""
    root = str(Path(__file__).parents[1])
    return _digest_of((path.removeprefix(root), path) for path in sorted(_code_files(root, _OTHER)))


@functools.cache
def backend_code(backend_class: type) -> Mapping[str, Digest]:
    """Return the digest of the packages of another distribution's backend: they decide which nodes are in its engines.

    Raises:
        ValueError: a package has no files, so that a change to it cannot be noticed.
    """
    files: list[tuple[str, str]] = []
    for parent in backend_class.__mro__[:-1]:
        # The outermost package with a file: what is above it is shared by several distributions.
        names = parent.__module__.split(".")
        prefixes = (".".join(names[:count]) for count in range(1, len(names) + 1))
        module = next(
            (sys.modules[name] for name in prefixes if getattr(sys.modules.get(name), "__file__", None)), None
        )
        if module is None or module.__file__ is None:
            raise ValueError(f"backend {backend_class.__name__} is defined in {parent.__module__}, which has no file")
        if module.__name__ in ("trtcache", "abc"):
            continue
        root = Path(module.__file__)
        paths = sorted(_code_files(str(root.parent))) if hasattr(module, "__path__") else [str(root)]
        files += [(os.path.relpath(path, root.parent), path) for path in paths]
    return {"backend_code": _digest_of(files)} if files else {}


def _digest_of(files: Iterable[tuple[str, str]]) -> Digest:
    """Return the digest of files with these names, in this order."""
    parts: list[bytes] = []
    for name, path in files:
        encoded, content = name.encode(), file_bytes(path)
        parts += (b"%d:%b%d:" % (len(encoded), encoded, len(content)), content)
    framed = b"".join(parts)
    return Digest(hash_bytes(framed).hex(), len(framed))


def _code_files(folder: str, left_out: Collection[str] = ()) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                if entry.name not in left_out and entry.name != "__pycache__":
                    yield from _code_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


_WRITTEN_BY_BUILDS = ("aot_inductor.metadata",)  # torch/_inductor/compile_fx.py stores the last package's device there


def flushes_denormals() -> bool:
    """Return whether ``torch.set_flush_denormal`` is on in this thread; torch does not tell."""
    return sys.float_info.min * 0.5 == 0.0


def overrides(config: ModuleType | None) -> Iterator[tuple[str, object]]:
    """Yield options whose value differs from both their default and their environment variable, but not passes.

    ``passes`` yields those: what Inductor's own cache ignores in its configuration, it treats in another way there.
    """
    ignored = (*getattr(config, "_cache_config_ignore_prefix", ()), *_WRITTEN_BY_BUILDS)
    return _changed_options(config, lambda name: not name.startswith(ignored))


def passes(config: ModuleType | None) -> Iterator[tuple[str, str]]:
    """Yield options for passes over graphs that are set and that ``overrides`` leaves out, with what identifies them.

    That is ``uuid()``, as for ``torch._inductor.custom_graph_pass.CustomGraphPass``. A function without it is another
    one in each process, since what it does depends on more than its own code.
    """
    ignored = tuple(getattr(config, "_cache_config_ignore_prefix", ()))
    for name, value in _changed_options(config, lambda name: "pass" in name and name.startswith(ignored)):
        kind, uuid = type(value), getattr(value, "uuid", None)
        found = uuid() if callable(uuid) else value if kind in {str, bool, int} else None
        token = repr(found)
        if found is None:
            from trtcache.lowering.operators import number_in_process  # imports sympy

            token = number_in_process(value)
        yield name, f"{kind.__module__}.{kind.__qualname__} {token}"


def _changed_options(config: ModuleType | None, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, object]]:
    """Yield options with a name that is wanted and a value that is not a default."""
    entries: Mapping[str, Any] = getattr(config, "_config", {})
    if not entries:
        return
    from torch.utils import _config_module

    unset: object = _config_module._UNSET_SENTINEL
    for name, entry in entries.items():
        if not is_wanted(name):
            continue
        override = entry.user_override
        value = override.get() if isinstance(override, ContextVar) else override  # torch 2.11: the value itself
        if value is unset:
            continue
        defaults = (entry.default, entry.env_value_default, entry.env_value_force)
        if value not in [default for default in defaults if default is not unset]:
            yield name, value


KIND: Final = "alias"
MEMBER: Final = "alias.json"

_FORMAT = 4

INITIAL_STATE: Final[Mapping[str, object]] = {
    "dtype": "torch.float32",
    "device": "cpu",
    "autocast": [[False, "torch.bfloat16"], [False, "torch.float16"]],
    "deterministic": False,
    "attention": [True, True, True, True],
}
"""``keys.key.process_state``, as torch begins."""


def make_alias_key(
    fingerprint: Mapping[str, object],
    option_parts: Mapping[str, object],
    *,
    backend: Backend,
    device_type: str,
    torch_executed_modules: Collection[str],
    torch: Sequence[str | None],
    other_passes: Sequence[str],
    process: Mapping[str, object],
) -> CacheKey:
    """Return the key of an alias, from everything that the cache key depends on and that is known without lowering.

    Args:
        fingerprint: the program's fingerprint (``Source.fingerprint``).
        option_parts: the parts of the cache key that only the options and this machine determine: settings, target,
            toolchain, ambient.
        backend: the backend that builds.
        device_type: ``cpu`` or ``cuda``, where the program runs.
        torch_executed_modules: the one setting that changes the cache key without being part of it.
        torch: the version of torch and of its source.
        other_passes: the specs of the passes of other distributions.
        process: torch's global state.
    """
    capabilities = backend.capabilities
    return CacheKey.of(
        KIND,
        {
            "weights": None,
            **fingerprint,
            **option_parts,
            "format": _FORMAT,
            "backend": backend.name,
            "torch_executed_modules": sorted(torch_executed_modules),
            "device": device_type,
            "torch": torch,
            "code": code_digest(),
            **backend_code(type(backend)),
            "passes": {
                "keep": sorted(capabilities.keep),
                "unpack": sorted(capabilities.unpack),
                "others": other_passes,
            },
            "process": process,
        },
    )
