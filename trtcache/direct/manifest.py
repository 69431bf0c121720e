"""The manifest: what led from a module to an exported program, and all that has to be as it was.

An entry of kind ``direct`` has the manifests of one direct key, the newest first: the same model can become one program
with one version of a file and another with the next, and go back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.config.stat_fingerprint import FileState
from trtcache.digests import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "direct"
MEMBER, DETAILS = "direct.json", "details.json"
FORMAT = 3
MOST = 8


@dataclass(frozen=True, slots=True)
class OfClass:
    """What is looked at of a class: its place in the model, or the module and name by which it is found.

    One that was only named is looked at in brief: not ``in_full``.
    """

    number: int | None
    module: str
    name: str
    in_full: bool
    ran: tuple[str, ...]
    unread: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class OfModule:
    """What is looked at of a module: these of its globals have this digest."""

    names: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class OfFile:
    """What the file of a module was: its digest, and by which state it is known again."""

    digest: str
    size_bytes: int
    seen: tuple[int, ...] | None = None

    @property
    def state(self) -> FileState | None:
        """The state, if the file was settled in it."""
        return FileState(*self.seen) if self.seen else None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What has to be as it was, and the program that it led to.

    Attributes:
        program: the digest of the exported program, from which a memo leads on.
        device: where it runs.
        in_spec, out_spec: how torch flattens arguments and output.
        files: by the names of modules.
        classes: the model's own classes.
        modules: globals that were read, by module.
        environment: variables that the model asked for.
        imports: modules of the model's own that it imports when it is called.
        took_s: seconds that exporting took.
        why: why there was none before.
    """

    program: Digest
    device: str
    in_spec: str
    out_spec: str
    files: Mapping[str, OfFile]
    classes: tuple[OfClass, ...]
    modules: Mapping[str, OfModule]
    environment: Mapping[str, str | None]
    imports: tuple[str, ...] = ()
    took_s: float = 0.0
    why: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def document(self) -> dict[str, Any]:
        """Return this as JSON, without details."""
        return {name: value for name, value in asdict(self).items() if name != "details"}

    @classmethod
    def read(cls, written: Any) -> Manifest:
        """Return the manifest that ``document`` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(
                program=Digest(str(written["program"]["hex"]), int(written["program"]["size_bytes"])),
                device=str(written["device"]),
                in_spec=str(written["in_spec"]),
                out_spec=str(written["out_spec"]),
                files={name: _file(one) for name, one in written["files"].items()},
                classes=tuple(map(_class, written["classes"])),
                modules={
                    name: OfModule(_texts(one["names"]), one["digest"]) for name, one in written["modules"].items()
                },
                environment=dict(written["environment"]),
                imports=_texts(written["imports"]),
                took_s=float(written["took_s"]),
                why=str(written["why"]),
            )
        except (LookupError, TypeError, AttributeError, OverflowError) as error:  # JSON has an Infinity here
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _file(written: Any) -> OfFile:
    seen = written["seen"]
    return OfFile(str(written["digest"]), int(written["size_bytes"]), tuple(map(int, seen)) if seen else None)


def _class(written: Any) -> OfClass:
    number = written["number"]
    texts = (_texts(written["ran"]), _texts(written["unread"]))
    place = (None if number is None else int(number), written["module"], written["name"], bool(written["in_full"]))
    return OfClass(*place, *texts, written["digest"])


def _texts(written: Any) -> tuple[str, ...]:
    return tuple(map(str, written))


def write(manifests: list[Manifest], parts: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the members of an entry: what is checked, and what a difference is told by."""
    kept = manifests[:MOST]
    return {
        MEMBER: _bytes({"format": FORMAT, "manifests": [one.document() for one in kept]}),
        DETAILS: _bytes({"parts": parts, "manifests": [one.details for one in kept]}),
    }


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def read(data: bytes) -> list[Manifest]:
    """Return the manifests that ``write`` wrote.

    Raises:
        ValueError: there are none in it.
    """
    written = json.loads(data)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise ValueError("it is of another version")
    if not isinstance(written.get("manifests"), list):
        raise ValueError("it has no manifests")  # noqa: TRY004  # what is read of a file is right or wrong
    return [Manifest.read(one) for one in written["manifests"]]


def details(data: bytes) -> dict[str, Any]:
    """Return the descriptions behind the digests of an entry's manifests.

    Raises:
        ValueError: there are none in it.
    """
    written = json.loads(data)
    if not isinstance(written, dict):
        raise ValueError("it is no object")  # noqa: TRY004  # what is read of a file is right or wrong
    return written
