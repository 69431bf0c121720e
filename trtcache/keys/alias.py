"""Key aliases: from the fingerprint of a program that has not changed to the cache key of its engine.

Bazel calls this an action-cache entry and ccache a manifest. An alias is an entry of the store like any other, of kind
``memo``. Its own key has everything that the cache key depends on and that is known without lowering: the program's
fingerprint (with the values of weights only where an engine may have some of them in it), settings, target, backend
with its toolchain, torch, the code of our own lowering, the passes of other distributions, and the state of torch in
this process. It holds the cache key with its whole document, which is compared with the entry's own as on every hit,
and what an artifact never holds: how arguments are nested, which a program in memory knows itself, and the program's
names for its weights.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.stat_fingerprint import StatFingerprint
from trtcache.digests import CacheKey, Digest, canonical, file_bytes, hash_bytes, json_bytes
from trtcache.keys.key import structure
from trtcache.lowering.contents import Content
from trtcache.lowering.entry_points import installed_passes
from trtcache.lowering.interface import SmallSizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from trtcache.backends.protocol import Backend
    from trtcache.lowering import LoweredProgram

KIND = "memo"
MEMBER = "memo.json"

_FORMAT = 4
_OTHER = frozenset({"bundle", "integrations", "runtime", "store"})
"""Packages of ours that decide no key. All others count, so that no new one can be forgotten."""

_SDPA = ("cudnn_sdp_enabled", "flash_sdp_enabled", "math_sdp_enabled", "mem_efficient_sdp_enabled")


Specs = tuple[pytree.TreeSpec, pytree.TreeSpec]
"""How torch flattens a call's arguments, and a program's output."""


@dataclass(frozen=True, slots=True)
class KeyAlias:
    """What lowering a program gave.

    Attributes:
        key: the key of the engine, with its document.
        device: where the program runs.
        names: the program's names for the weight of each slot.
        known: every name that the program has for a weight or a constant.
        sources: what the program's own constants are, by its names for them.
        in_spec, out_spec: how torch flattens the call's arguments and the program's output.
        whole: the digest of the whole file, weights and all: those of another have to be looked at. None for a program
            in memory, of which ``in_spec`` and ``out_spec`` are not written either.
        seen: in what state the file was that has this digest, if its state tells that.
        small_sizes: which sizes of 0 and 1 the program answers (``Interface.small_sizes``).
    """

    key: CacheKey
    device: torch.device
    names: tuple[tuple[str, ...], ...]
    known: frozenset[str]
    sources: Mapping[str, Content]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    whole: Digest | None
    seen: StatFingerprint | None = None
    small_sizes: SmallSizes | None = None

    @classmethod
    def of(
        cls, program: LoweredProgram, key: CacheKey, whole: Digest | None, *, seen: StatFingerprint | None = None
    ) -> KeyAlias:
        """Return the alias of a lowered program, its key, and the digest and stat fingerprint of its file."""
        return cls(
            key=key,
            device=program.device,
            names=tuple(slot.names for slot in program.interface.slots),
            known=frozenset(program.state),
            sources=program.sources,
            in_spec=program.in_spec,
            out_spec=program.out_spec,
            whole=whole,
            seen=seen,
            small_sizes=program.interface.small_sizes,
        )

    @classmethod
    def read(cls, data: bytes, specs_of: Callable[[CacheKey], Specs | None] = lambda _: None) -> KeyAlias:
        """Return the alias that ``write`` wrote.

        Args:
            data: what ``write`` returned.
            specs_of: returns how arguments and output are nested where the source knows it (``Source.specs_of``).

        Raises:
            ValueError: the data is not an alias, its parts do not fit each other, or it has a type that this process
                has not registered with torch.
        """
        try:
            written = json.loads(data)
            key = CacheKey.of_document(written["key"])
            specs = specs_of(key)
            in_spec, out_spec = specs or tuple(map(pytree.treespec_loads, (written["in_spec"], written["out_spec"])))
            alias = cls(
                key=key,
                device=torch.device(written["device"]),
                names=tuple(tuple(names) for names in written["names"]),
                known=frozenset(written["known"]),
                sources={
                    name: Content(content["digest"], content["dtype"], tuple(content["shape"]))
                    for name, content in written["sources"].items()
                },
                in_spec=in_spec,
                out_spec=out_spec,
                whole=None if specs else Digest(*written["whole"]),
                seen=StatFingerprint.read(written["seen"]) if written.get("seen") else None,
                small_sizes=SmallSizes.read(written["small_sizes"]),
            )
            parts: Any = key.document["parts"]
            expected = canonical({"arguments": structure(in_spec), "output": structure(out_spec)})
            if "names" not in parts and parts["structure"] != expected:  # an ONNX file has names, and no nesting
                raise ValueError("its arguments are nested otherwise than its key says")
        except (LookupError, TypeError, AttributeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return alias

    def write(self) -> bytes:
        """Return the alias as bytes that ``read`` takes.

        Raises:
            ValueError: a type among the arguments or the output has no name that another process would know.
        """
        document = {
            **(self._of_file() if self.whole else {}),
            "key": self.key.document,
            "device": str(self.device),
            "names": self.names,
            "known": sorted(self.known),
            "sources": {name: asdict(content) for name, content in self.sources.items()},
            "small_sizes": self.small_sizes.document() if self.small_sizes else None,
        }
        return json_bytes(document)

    def _of_file(self) -> dict[str, object]:
        assert self.whole  # noqa: S101  # only a file's memo has this
        try:
            specs = {"in_spec": pytree.treespec_dumps(self.in_spec), "out_spec": pytree.treespec_dumps(self.out_spec)}
        except (TypeError, NotImplementedError) as error:
            raise ValueError(str(error)) from error
        seen = self.seen.document() if self.seen else None
        return {**specs, "whole": [self.whole.hex, self.whole.size_bytes], "seen": seen}


def alias_key(
    fingerprint: Mapping[str, object],
    given: Mapping[str, object],
    *,
    backend: Backend,
    device_type: str,
    torch_executed_modules: Collection[str],
) -> CacheKey:
    """Return the key of an alias: everything that a program's cache key depends on, as it is known without lowering.

    Args:
        fingerprint: of the program (``Source.fingerprint``).
        given: the parts of the cache key that only the caller and the machine decide: settings, target, toolchain,
            ambient.
        backend: the backend that builds.
        device_type: ``cpu`` or ``cuda``, where the program runs.
        torch_executed_modules: the one setting that is in no cache key and changes it.

    Raises:
        CanonicalizationError: a part has no stable value.
        PassError: a pass of another distribution cannot be had.
        OSError: our own code cannot be read.
    """
    capabilities = backend.capabilities
    return CacheKey.of(
        KIND,
        {
            "weights": None,
            **fingerprint,
            **given,
            "format": _FORMAT,
            "backend": backend.name,
            "torch_executed_modules": sorted(torch_executed_modules),
            "device": device_type,
            "torch": [torch.__version__, torch.version.git_version],
            "code": code_digest(),
            "passes": {"keep": sorted(capabilities.keep), "unpack": sorted(capabilities.unpack), "others": others()},
            "process": process(),
        },
    )


def others() -> list[str]:
    """Return the specs of the passes of other distributions, which are imported for it; nearly always there are none.

    Raises:
        PassError: a pass cannot be had.
    """
    points = installed_passes()
    if not points:
        return []
    from trtcache.lowering.pipeline import last_pipeline

    return last_pipeline(points, ()).spec


def process() -> dict[str, object]:
    """Return what this process says to torch that decompositions can depend on."""
    devices = ("cpu", "cuda")
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "autocast": [[torch.is_autocast_enabled(one), str(torch.get_autocast_dtype(one))] for one in devices],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "attention": [bool(getattr(torch.backends.cuda, name)()) for name in _SDPA],
    }


@functools.cache
def code_digest() -> Digest:
    """Return the digest of this package's code but that of ``_OTHER``: no alias is used after a change to it.

    Raises:
        OSError: it cannot be read.
    """
    root = str(Path(__file__).parents[1])
    parts: list[bytes] = []
    for path in sorted(_code_files(root, _OTHER)):
        name, content = path.removeprefix(root).encode(), file_bytes(path)
        parts += (b"%d:%b%d:" % (len(name), name, len(content)), content)
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
