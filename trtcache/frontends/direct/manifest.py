"""Manifests: traces, each with the exported program that performs its operations.

An entry of kind ``direct`` has the manifests of one direct key, newest first: one model performs other operations when
its code or its attributes change, and the first ones again when they change back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Digest
from trtcache.keys.program_digest import devices
from trtcache.store.contract import Entry

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.cache import Cache
    from trtcache.frontends.direct.trace import Trace
    from trtcache.store.layers import Layers


KIND = "direct"
MEMBER, DETAILS = "direct.json", "details.json"
FORMAT = 21
MAX_MANIFESTS = 8
_MAX_VERSIONS = 8


@frozen_dataclass
class Manifest:
    """The trace of a model, and the exported program that performs its operations.

    Attributes:
        trace: the trace.
        versions: versions of the model's code that perform these operations, newest first. Each has the digests of the
            functions that ran, in the recording or in the export.
        program: the digest of the exported program, which has a key alias, and its size in bytes.
        device: the device that it runs on.
        took_s: seconds that exporting took.
    """

    trace: Trace
    versions: list[list[str]]
    program: list[Any]
    device: str
    took_s: float = field(default=0.0, compare=False)

    @classmethod
    def of(
        cls, trace: Trace, code: Iterable[str], program: ExportedProgram, digest: Digest, export_s: float
    ) -> Manifest:
        """Return the manifest of an exported program.

        Raises:
            ValueError: it uses several devices.
        """
        found = devices(program)
        if len(found) > 1:
            raise ValueError(f"it uses several devices: {', '.join(sorted(map(str, found)))}")
        return cls(
            trace=trace,
            versions=[sorted(code)],
            program=[digest.hex, digest.size_bytes],
            device=str(next(iter(found), torch.device("cpu"))),
            took_s=export_s,
        )

    def add_to(self, older: Sequence[Manifest]) -> list[Manifest]:
        """Return this and older manifests, newest first. Manifests with the same program and operations are merged."""
        same = [one for one in older if replace(one, versions=self.versions) == self]
        versions = [*self.versions, *(version for one in same for version in one.versions)]
        unique = [version for place, version in enumerate(versions) if version not in versions[:place]]
        newest = replace(self, versions=unique[:_MAX_VERSIONS])
        return [newest, *(one for one in older if one not in same)]

    @property
    def digest(self) -> Digest:
        """The digest of the exported program."""
        return Digest(str(self.program[0]), int(self.program[1]))

    def torch_device(self) -> torch.device:
        """Return the device of the program.

        Raises:
            ValueError: torch does not know it.
        """
        try:
            return torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"its device is unknown here: {error}") from error


def write(manifests: list[Manifest], parts: Mapping[str, Any]) -> dict[str, bytes]:
    """Serialize manifests as the members of an entry: the manifests, and the parts of their key for explanations."""
    kept = manifests[:MAX_MANIFESTS]
    return {
        MEMBER: _bytes(
            {
                "format": FORMAT,
                "manifests": [{one.name: getattr(manifest, one.name) for one in fields(manifest)} for manifest in kept],
            }
        ),
        DETAILS: _bytes({"parts": parts}),
    }


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def read(data: bytes) -> list[Manifest]:
    """Parse manifests that ``write`` serialized.

    Raises:
        ValueError: the data is something else.
    """
    written = json.loads(data)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise ValueError("it is of another version")
    try:
        found = [_manifest(one) for one in written["manifests"]]
    except (LookupError, TypeError, AttributeError, OverflowError) as error:  # JSON has an Infinity here
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not found:
        raise ValueError("it has no manifest")
    return found


def _manifest(written: Any) -> Manifest:
    manifest = Manifest(**written)
    if type(manifest.device) is not str or type(manifest.took_s) not in {float, int} or not manifest.digest:
        raise ValueError("it has values of other types")
    if not isinstance(manifest.trace, list) or not manifest.trace or not all(map(_is_line, manifest.trace)):
        raise ValueError("its trace has another form")
    versions = manifest.versions
    if not isinstance(versions, list) or not versions or not all(map(_is_version, versions)):
        raise ValueError("its code has another form")
    return manifest


def _is_version(version: Any) -> bool:
    return isinstance(version, list) and all(isinstance(one, str) for one in version)


def _is_line(line: Any) -> bool:
    """Return whether a line of a trace has the form of one."""
    if not isinstance(line, list) or len(line) < 2 or type(line[0]) is not str:
        return False
    if line[0] in {"assigned", "grad", "results", "sizes"}:
        return True
    return len(line) == 4 and all(isinstance(part, list) and part for part in line[1:3])


def details(data: bytes) -> dict[str, Any]:
    """Parse the parts of the key of an entry's manifests.

    Raises:
        ValueError: the data is something else.
    """
    written = json.loads(data)
    if not isinstance(written, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  # the data is wrong, not its type
    return written


log = logging.getLogger(__name__)

NO_MANIFEST = "no matching manifest"
REASON_MEMBER, REASON_KIND = "reason", "direct-why"

_MAX_CHARACTERS = 60  # of a value
_MAX_DIFFERENCES = 3


def format_differences(before: Any, after: Any) -> str:
    """Return the first differences between the parts of two direct keys; empty if there are none.

    For example ``weights lin.weight: 4 -> 5``.
    """
    found = [f"{path.strip('.')}: {_shorten(old)} -> {_shorten(new)}" for path, old, new in _differences(before, after)]
    more = f", and {len(found) - _MAX_DIFFERENCES} more" if len(found) > _MAX_DIFFERENCES else ""
    return "; ".join(found[:_MAX_DIFFERENCES]) + more


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two descriptions differ, with their values there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path} {name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from _differences(old, new, path)
    elif before != after:
        yield path.strip(), before, after


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def differences_to_newest(cache: Cache, name: str, parts: Mapping[str, Any]) -> str:
    """Return the differences from the newest stored manifest of a model of this name, or ``NO_MANIFEST``."""
    from trtcache.store.catalog import load_records

    for store in cache.layers.disks:
        try:
            records = [record for record in load_records(store) if record.kind == KIND and record.name == name]
            for record in sorted(records, key=lambda record: -record.created_ns):
                entry = cache.peek(store.header(record.digest).key, counted=False)
                if entry is not None:
                    stored = details(bytes(entry.read(DETAILS)))["parts"]
                    return format_differences(stored, json.loads(json.dumps(parts))) or NO_MANIFEST
        except Exception:  # only a diagnostic: compilation goes on whatever the store contains
            log.debug("reading the newest manifest failed", exc_info=True)
    return NO_MANIFEST


def reason_key(name: str) -> CacheKey:
    """Return the key of the entry with the last reason for a model of this name."""
    return CacheKey.of(REASON_KIND, {"format": FORMAT, "name": name})


def store_reason(cache: Cache, name: str, reason: str) -> None:
    """Store the outcome of direct mode for ``trtcache why --direct``, unless it is stored already."""
    if cache.store is None or not cache.store.can_store_builds:
        return
    data = reason.encode()
    try:
        if load_reason(cache.layers, name) != reason:
            cache.keep(reason_key(name), {REASON_MEMBER: data}, build_s=0.0, name=name)
    except Exception:  # only a diagnostic
        log.debug("storing the outcome of direct mode failed", exc_info=True)


def load_reason(layers: Layers, name: str) -> str | None:
    """Return the last outcome of direct mode for a model of this name; None if none is stored."""
    entry = layers.get(reason_key(name))
    try:
        return bytes(entry.read(REASON_MEMBER)).decode("utf-8", "replace") if isinstance(entry, Entry) else None
    except KeyError:
        return None
