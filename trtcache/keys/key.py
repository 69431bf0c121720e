"""Cache keys of compiled programs, and key aliases: from an unchanged program's fingerprint to its engine's cache key.

Bazel calls an alias an action-cache entry and ccache a manifest. It is stored as an ordinary entry, of kind ``alias``.
Its own key covers everything that the cache key depends on and that is known without lowering: the program's
fingerprint (with the values of weights of an ONNX file, and of files whose weights the backend may embed in the
engine), settings, target, backend and toolchain, torch, the code of our lowering, the passes of other distributions,
and the state of torch in this process. An alias contains the cache key with its whole document, which is compared with
the entry's own as on every hit, and what artifacts do not contain: how arguments are nested (for a program in a file)
and the program's names for its weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, field
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import StatFingerprint
from trtcache.digests import CacheKey, Digest, Json, canonical, encode, hash_bytes, json_bytes
from trtcache.errors import CanonicalizationError
from trtcache.keys.alias_key import flushes_denormals, make_alias_key
from trtcache.lowering.arguments import children, module_class
from trtcache.lowering.interface import Content, SmallSizes, parse_sources
from trtcache.lowering.operators import replaced_functions
from trtcache.lowering.passes import installed_passes
from trtcache.weights.fingerprints import fingerprints

if TYPE_CHECKING:
    from trtcache.backends.protocol import Backend
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot


PROGRAM_PARTS = (
    "graph",
    "inputs",
    "values",
    "structure",
    "layouts",
    "views",
    "sizes",
    "guards",
    "pipeline",
    "operators",
)
"""The parts of a key that describe the program, not how and for what it is built."""

EXAMPLE_SIZES = "example_sizes"
"""The part of a key with sizes of the example, for an engine that may take no others."""

_SDPA = ("cudnn_sdp_enabled", "flash_sdp_enabled", "math_sdp_enabled", "mem_efficient_sdp_enabled")


Specs = tuple[pytree.TreeSpec, pytree.TreeSpec]
"""The pytree specs of a call's arguments and of a program's output."""


@frozen_dataclass
class KeyAlias:
    """The result of lowering a program, as far as a hit needs it.

    Attributes:
        key: the key of the engine, with its document.
        device: the device that the program runs on.
        names: the program's names for the weight of each slot.
        known: all names that the program has for weights and constants.
        constant_contents: the contents of the program's own constants, by name.
        in_spec, out_spec: the pytree specs of the call's arguments and of the program's output.
        content_digest: the digest of the whole file, with its weights: a file with another digest has its weights
            checked. None for a program in memory and for an ONNX file, which know ``in_spec`` and ``out_spec``: these
            are not stored either.
        file_stat: the stat fingerprint of the file with this digest, if it is reliable.
        small_sizes: which sizes of 0 and 1 the program handles (``Interface.small_sizes``).
        operators: what identified the program's custom operators before it was lowered (``identify_operators``).
        example_sizes: the example's dynamic sizes by the numbers of their symbols, as far as they are known.
    """

    key: CacheKey
    device: torch.device
    names: tuple[tuple[str, ...], ...]
    known: frozenset[str]
    constant_contents: Mapping[str, Content]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    content_digest: Digest | None
    file_stat: StatFingerprint | None = None
    small_sizes: SmallSizes | None = None
    operators: Mapping[str, Json] = field(default_factory=dict)
    example_sizes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        program: LoweredProgram,
        key: CacheKey,
        content_digest: Digest | None,
        *,
        file_stat: StatFingerprint | None = None,
        operators: Mapping[str, Json] | None = None,
    ) -> KeyAlias:
        """Create the alias of a lowered program.

        Args:
            program: the lowered program.
            key: its key.
            content_digest: the digest of its file.
            file_stat: the stat fingerprint of its file.
            operators: the identities of its custom operators.
        """
        return cls(
            key=key,
            device=program.device,
            names=tuple(slot.names for slot in program.interface.slots),
            known=frozenset(program.state),
            constant_contents=program.constant_contents,
            in_spec=program.in_spec,
            out_spec=program.out_spec,
            content_digest=content_digest,
            file_stat=file_stat,
            small_sizes=program.interface.small_sizes,
            operators=operators or {},
            example_sizes=program.example_sizes,
        )

    @classmethod
    def read(cls, data: bytes, specs_of: Callable[[CacheKey], Specs | None] = lambda _: None) -> KeyAlias:
        """Parse an alias that ``write`` serialized.

        Args:
            data: the serialized alias.
            specs_of: returns the pytree specs where the source knows them (``Source.specs_of``).

        Raises:
            ValueError: the data is not an alias, it is inconsistent, or it has a type that is not registered with
                torch in this process.
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
                constant_contents=parse_sources(written["sources"]),
                in_spec=in_spec,
                out_spec=out_spec,
                # "whole" and "seen" are the names in the stored format.
                content_digest=None if specs else Digest(*written["whole"]),
                file_stat=StatFingerprint.from_document(written["seen"]) if written.get("seen") else None,
                small_sizes=SmallSizes.read(written["small_sizes"]),
                operators=dict(written.get("operators", {})),
                example_sizes={int(number): int(size) for number, size in written.get("example_sizes", ())},
            )
            parts = key.parts
            expected = canonical({"arguments": structure(in_spec), "output": structure(out_spec)})
            if "structure" in parts and parts["structure"] != expected:  # an ONNX file has names instead of nesting
                raise ValueError("the nesting of its arguments differs from its key's")
        except (LookupError, TypeError, AttributeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return alias

    def write(self) -> bytes:
        """Serialize the alias.

        Raises:
            ValueError: a type among the arguments or the output is not registered with torch under a stable name.
        """
        of_file: dict[str, object] = {}
        if self.content_digest:  # a program in memory knows its own specs
            try:
                of_file["in_spec"] = pytree.treespec_dumps(self.in_spec)
                of_file["out_spec"] = pytree.treespec_dumps(self.out_spec)
            except (TypeError, NotImplementedError) as error:
                raise ValueError(str(error)) from error
            of_file["whole"] = [self.content_digest.hex, self.content_digest.size_bytes]
            of_file["seen"] = self.file_stat.document() if self.file_stat else None
        document = {
            **of_file,
            "key": self.key.document,
            "device": str(self.device),
            "names": self.names,
            "known": sorted(self.known),
            "sources": {name: asdict(content) for name, content in self.constant_contents.items()},
            "small_sizes": self.small_sizes.document() if self.small_sizes else None,
        }
        if self.example_sizes:
            document["example_sizes"] = sorted(self.example_sizes.items())
        if self.operators:
            document["operators"] = dict(self.operators)
        return json_bytes(document)


def alias_key(
    fingerprint: Mapping[str, object],
    option_parts: Mapping[str, object],
    *,
    backend: Backend,
    device_type: str,
    torch_executed_modules: Collection[str],
) -> CacheKey:
    """Return the key of an alias: ``make_alias_key`` with the version of torch, its state, and the installed passes."""
    return make_alias_key(
        fingerprint,
        option_parts,
        backend=backend,
        device_type=device_type,
        torch_executed_modules=torch_executed_modules,
        torch=[torch.__version__, torch.version.git_version],
        other_passes=other_passes(),
        process=process_state(),
    )


def other_passes() -> list[str]:
    """Return the specs of the passes that other distributions register, which imports them; nearly always none."""
    points = installed_passes()
    if not points:
        return []
    from trtcache.lowering.stages import last_pipeline

    return last_pipeline(points, ()).spec


def process_state() -> dict[str, object]:
    """Return torch's global state in this process, as far as decompositions can depend on it."""
    devices = ("cpu", "cuda")
    replaced = replaced_functions()
    return {
        **({"replaced": replaced} if replaced else {}),  # other processes keep their aliases
        **({"denormals": "flushed"} if flushes_denormals() else {}),  # constants are folded in this process
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "autocast": [[torch.is_autocast_enabled(kind), str(torch.get_autocast_dtype(kind))] for kind in devices],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "attention": [bool(getattr(torch.backends.cuda, name)()) for name in _SDPA],
    }


def key_parts(
    program: LoweredProgram,
    graph: Digest,
    *,
    settings: Settings,
    target: Target,
    toolchain: Mapping[str, object],
    ambient: Mapping[str, object],
) -> dict[str, object]:
    """Return the named parts of the key of a lowered program's artifact.

    Weights are in it as slots, inside the graph's digest: by number, dtype, shape, strides and device type. Names of
    parameters, paths, hosts, users and device indices are not.
    """
    interface = program.interface
    parts = {
        "graph": graph,
        "inputs": [one.document() for one in interface.inputs],
        "values": [[one.leaf, one.value] for one in interface.values],
        "structure": {"arguments": structure(program.in_spec), "output": structure(program.out_spec)},
        "layouts": [one.layout for one in interface.results],
        "sizes": list(interface.ranges),
        "pipeline": program.pipeline,
        "settings": settings.document(),
        "ambient": ambient,
        "target": target.document(),
        "toolchain": toolchain,
    }
    if interface.views:  # likewise below: a program without them keeps its key
        parts["views"] = interface.views
    if interface.guards:  # a program without guards keeps the key of versions without guards
        parts["guards"] = list(interface.guards)
    return parts


def frozen_part(program: LoweredProgram, frozen: Sequence[Slot]) -> dict[str, object]:
    """Return the key part of frozen weights, their values; empty without."""
    if not frozen:
        return {}
    found = fingerprints([program.state[slot.names[0]] for slot in frozen])
    return {"frozen": [[slot.index, digest] for slot, digest in zip(frozen, found, strict=True)]}


def part_digests(key: CacheKey) -> str:
    """Return the digest of each part of a key, shortened: two machines whose keys differ see at once which parts do."""
    return ", ".join(f"{name} {hash_bytes(encode(part)).hex()[:12]}" for name, part in key.parts.items())


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def structure(spec: pytree.TreeSpec) -> Any:
    """Return the shape of a pytree as lists: ``None`` for a leaf, ``[type, names or None, children...]`` for a node."""
    if spec.is_leaf():
        return None
    kind = f"{spec.type.__module__}.{spec.type.__qualname__}"
    # The context of a module argument has a weak reference, which differs in each process.
    context = spec.context if module_class(spec) is None else spec.context[0]
    return [kind, _context(context), *map(structure, children(spec))]


def _context(context: Any) -> Any:
    if context is None or isinstance(context, (bool, int, str)):
        return context
    if isinstance(context, (list, tuple)):
        return [_context(one) for one in context]
    if isinstance(context, (type, FunctionType, BuiltinFunctionType)):
        return f"{context.__module__}.{context.__qualname__}"
    if isinstance(context, (set, frozenset)):
        return sorted(map(repr, context))
    if _ADDRESS.search(text := repr(context)):
        why = f"a {type(context).__name__} in the structure of arguments or results is shown with its address"
        raise CanonicalizationError("structure", why)
    return text
