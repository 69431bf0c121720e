"""Serialized programs for other processes: for the worker of a background build, and kept beside their engines.

Such a process may lack the classes of arguments and results. ``torch.export.load`` reads a structure only if its
classes are registered there, as the outputs of transformers and users' dataclasses are where the model is. So a
structure with classes is written as a tuple of its leaves. Beside the program it is described as JSON, from which the
reader rebuilds it with a stand-in for each class: a new class of the same name, so that the key is the same.

``compile(..., keep_program=True)`` stores an entry of kind ``program``: the output of ``torch.export.save`` with zeros
for every weight, the options of the compilation, and the flags of torch that its engines depend on; if arguments or
results have classes, also a description of these (``program_file``). An engine with embedded weights cannot be built
from zeros, so its program is not kept.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import mmap
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Json
from trtcache.errors import ExportError, TrtcacheError
from trtcache.frontends.weight_files import capture_logged_error
from trtcache.keys.alias_key import overrides, passes
from trtcache.keys.key import structure
from trtcache.lowering import TORCH_LOCK
from trtcache.lowering.arguments import children, module_class
from trtcache.lowering.device_guard import keep_device_guard

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.cache import Cache
    from trtcache.frontends.source import CompileOptions
    from trtcache.runtime import Report


def _inductor_overrides() -> dict[str, object]:
    return dict(overrides(sys.modules.get("torch._inductor.config")))


def _set_inductor_overrides(options: Mapping[str, object]) -> None:
    from torch._inductor import config

    for name, value in options.items():
        setattr(config, name, value)


def _set_deterministic(flags: list[bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


_FLAGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic": (
        lambda: [torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()],
        _set_deterministic,
    ),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    **{
        kernel: (getattr(torch.backends.cuda, f"{kernel}_enabled"), getattr(torch.backends.cuda, f"enable_{kernel}"))
        for kernel in ("cudnn_sdp", "flash_sdp", "math_sdp", "mem_efficient_sdp")
    },
    "default dtype": (
        lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        lambda name: torch.set_default_dtype(getattr(torch, name)),
    ),
    "inductor": (_inductor_overrides, _set_inductor_overrides),
}


def read_flags() -> dict[str, Json]:
    """Return the flags of this process.

    Raises:
        ValueError: one has a value that cannot be sent; the message says which.
    """
    flags: dict[str, Any] = {}
    for name, (get, _) in _FLAGS.items():
        try:
            flags[name] = get()
        except RuntimeError as error:  # a precision that was set for one device (torch 2.13)
            raise ValueError(f"the {name} cannot be sent to another process: {error}") from error
    for name, _ in passes(sys.modules.get("torch._inductor.config")):
        raise ValueError(f"torch._inductor.config.{name} cannot be sent to another process")
    for name, value in flags["inductor"].items():
        try:
            is_same = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise ValueError(f"torch._inductor.config.{name} cannot be sent to another process")
    return flags


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags that ``read_flags`` returned in another process."""
    for name, (get, set_) in _FLAGS.items():
        if name in flags and get() != flags[name]:
            set_(flags[name])


@contextmanager
def use_flags(flags: Mapping[str, Any]) -> Iterator[None]:
    """Set flags as ``set_flags`` does, until the block ends.

    Raises:
        ValueError: this version of torch lacks one, one of this process cannot be restored, or this process has changed
            an option of Inductor that was not changed for the program.
    """
    before = read_flags()
    changed: Any = before["inductor"]
    if others := sorted(set(changed) - set(flags.get("inductor") or ())):
        raise ValueError(f"torch._inductor.config.{others[0]} is changed in this process, and was not for the program")
    with ExitStack() as stack:
        stack.callback(set_flags, before)
        try:
            if options := flags.get("inductor"):
                from torch._inductor import config

                stack.enter_context(config.patch(options))
            set_flags(flags)
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"a flag of torch cannot be set as for the program: {error}") from error
        yield


_BUILTIN_CONTAINERS = {f"builtins.{kind.__name__}": kind for kind in (tuple, list, dict)}
# torch.export.load reads these in every process.
_TORCH_CONTAINERS = frozenset({*_BUILTIN_CONTAINERS.values(), OrderedDict, defaultdict, deque})


def without_classes(program: ExportedProgram) -> tuple[ExportedProgram, dict[str, Json]]:
    """Return a program without classes in its structures, and a description of the structures that had some.

    Module arguments stay, since torch reads them. The given program is not changed.

    Raises:
        CanonicalizationError: a structure has no stable description.
    """
    entry, *others = program.module_call_graph
    assert entry.signature is not None  # noqa: S101  # set by torch.export
    flat: dict[str, Any] = {}
    described: dict[str, Json] = {}
    for name, spec in (("in_spec", entry.signature.in_spec), ("out_spec", entry.signature.out_spec)):
        if _has_classes(spec) and not _has_modules(spec):
            leaves = (0,) * spec.num_leaves
            flat[name] = pytree.tree_structure((leaves, {}) if name == "in_spec" else leaves)
            described[name] = _describe(spec)
    if not flat:
        return program, {}
    changed = copy.copy(program)
    changed._module_call_graph = [replace(entry, signature=replace(entry.signature, **flat)), *others]
    return changed, described


def read_program(file: Path | IO[bytes], structures: Mapping[str, Json]) -> ExportedProgram:
    """Read a program that ``torch.export.save`` has written after ``without_classes``.

    Raises:
        ExportError: torch cannot read it; the message has the cause, which torch only logs.
    """
    keep_device_guard()
    logged = None
    try:
        with TORCH_LOCK, capture_logged_error("torch.export") as logged:
            program: ExportedProgram = torch.export.load(file)
    except Exception as error:
        cause = (logged and logged.error) or error
        why = f"{type(cause).__name__}: {cause}".split("\n", 1)[0][:300]
        raise ExportError("the program", f"torch.export.load cannot read it ({why})") from error
    signature = program.module_call_graph[0].signature
    for name, described in structures.items():
        setattr(signature, name, _with_stand_ins(described))
    return program


def _has_classes(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and (spec.type not in _TORCH_CONTAINERS or any(map(_has_classes, children(spec))))


def _has_modules(spec: pytree.TreeSpec) -> bool:
    return not spec.is_leaf() and (module_class(spec) is not None or any(map(_has_modules, children(spec))))


def _describe(spec: pytree.TreeSpec) -> Json:
    if spec.is_leaf():
        return None
    kind, context, *_ = structure(spec)
    is_plain = spec.type in {tuple, list} or (spec.type is dict and all(type(key) is str for key in context))
    parts = [_describe(child) for child in children(spec)]
    return {"type": kind, "context": context, "keys": None if is_plain else _keys(spec), "parts": parts}


def _keys(spec: pytree.TreeSpec) -> list[Json]:
    """Return the key of each child in the path of a leaf; empty if the class has no ``flatten_with_keys_fn``."""
    node = pytree.SUPPORTED_NODES[spec.type]
    with suppress(Exception):  # the code of the class can raise anything
        whole = node.unflatten_fn([0] * spec.num_children, spec.context)
        if node.flatten_with_keys_fn is not None:
            return [str(key) for key, _ in node.flatten_with_keys_fn(whole)[0]]
    return []


def _with_stand_ins(described: Any) -> pytree.TreeSpec:
    """Rebuild a structure from ``_describe``, with a stand-in for each class."""
    if described is None:
        return pytree.tree_structure(0)
    kind, context, keys = described["type"], described["context"], described["keys"]
    parts = [_with_stand_ins(part) for part in described["parts"]]
    if keys is None:
        return pytree.TreeSpec(_BUILTIN_CONTAINERS[kind], context, parts)
    return pytree.TreeSpec(_stand_in(kind, keys, context), context, parts)


def _stand_in(name: str, keys: Any, context: Any) -> type:
    """Return a new class called ``name``; torch can flatten it if the class that it stands for had ``keys``.

    Only the whole name matters, so it is split into module and class at its first dot.
    """
    module, _, qualified = name.partition(".")
    stand_in = type(qualified.rpartition(".")[2], (list,), {"__module__": module, "__qualname__": qualified})
    if keys:
        pytree.register_pytree_node(
            stand_in,
            lambda values: (list(values), context),
            lambda values, _: stand_in(values),
            flatten_with_keys_fn=lambda values: (list(zip(keys, values, strict=True)), context),
        )
    return stand_in


log = logging.getLogger(__name__)

KIND = "program"
PROGRAM, OPTIONS, FLAGS, STRUCTURES = "program.pt2", "asked.json", "flags.json", "structures.json"
"""Members of the entry; ``asked.json`` has the options."""


@frozen_dataclass
class KeptOptions:
    """The options that a kept program was compiled with, as JSON values."""

    backend: str
    settings: Mapping[str, object]
    target: str | None

    @classmethod
    def of(cls, options: CompileOptions) -> KeptOptions:
        """Convert options; only settings that differ from their defaults are kept."""
        return cls(options.backend, options.settings.explicit, options.target)

    def write(self) -> bytes:
        """Serialize the options as JSON."""
        document = {"backend": self.backend, "settings": self.settings, "target": self.target}
        return json.dumps(document, sort_keys=True).encode()

    @classmethod
    def read(cls, data: bytes) -> KeptOptions:
        """Parse options that ``write`` serialized.

        Raises:
            ValueError: the data is something else.
        """
        try:
            return cls(**json.loads(data))
        except TypeError as error:
            raise ValueError(str(error)) from error


def keep(
    cache: Cache, report: Report, program: Callable[[], torch.export.ExportedProgram], options: CompileOptions
) -> None:
    """Keep a program beside its engines, unless it is there. A failure is only a warning.

    Args:
        cache: the cache that has its engines.
        report: the report on its compilation, which names its engines.
        program: returns the program; it is not changed.
        options: the options that it was compiled with.
    """
    key = key_of(report)
    if key is None or (cache.store is not None and cache.store.contains(key.digest)):
        return
    if any(one.frozen for one in report.partitions):
        log.warning("the program of %s is not kept: one of its engines has embedded weights", report.name)
        return
    data = io.BytesIO()
    try:
        flags = read_flags()
        saved, structures = without_classes(without_weights(program()))
        torch.export.save(saved, data)
    except (OSError, TrtcacheError, AssertionError, RuntimeError, ValueError, TypeError) as error:
        log.warning("the program of %s is not kept: it cannot be saved: %s", report.name, error)
        return
    contents = {PROGRAM: data.getvalue(), OPTIONS: KeptOptions.of(options).write(), FLAGS: json.dumps(flags).encode()}
    if structures:
        contents[STRUCTURES] = json.dumps(structures).encode()
    cache.keep(key, contents, build_s=report.export_s + report.decompose_s, name=report.name)


def key_of(report: Report) -> CacheKey | None:
    """Return the key of the kept program of some engines, made from their keys; None if an engine has no key."""
    keys = [one.key.digest for one in report.partitions if one.key is not None]
    return CacheKey.of(KIND, {"engines": sorted(keys)}) if keys and len(keys) == len(report.partitions) else None


def without_weights(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a copy of a program without example inputs and with zeros for weights.

    The zeros are on the CPU and have the layout of the weights, and share memory as they do.

    Constants stay: results depend on them, and they are part of the key.
    """
    blanked = copy.copy(program)
    blanked._state_dict = zeros_with_layouts(layouts_of(program.state_dict))
    blanked._example_inputs = None  # users' data
    return blanked


def layouts_of(weights: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Return the layouts of weights, as JSON values."""
    storages: dict[int, int] = {}
    layouts: list[dict[str, Any]] = []
    for name, tensor in weights.items():
        storage = tensor.untyped_storage()
        layouts.append(
            {
                "name": name,
                "storage": storages.setdefault(storage._cdata, len(storages)),
                "bytes": storage.nbytes(),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "offset": tensor.storage_offset(),
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "parameter": isinstance(tensor, torch.nn.Parameter),
                "requires_grad": tensor.requires_grad,
            }
        )
    return layouts


def zeros_with_layouts(layouts: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return zeros with the layouts of weights, which share memory as the weights do. The zeros take no memory."""
    storages: dict[int, torch.UntypedStorage] = {}
    blank: dict[str, torch.Tensor] = {}
    for layout in layouts:
        place, size_bytes = layout["storage"], layout["bytes"]
        if place not in storages:
            # Private pages: a shared mapping takes memory as soon as it is read, as by ``torch.export.save``.
            flags, memory = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, torch.empty(0)
            if size_bytes:
                memory = torch.frombuffer(mmap.mmap(-1, size_bytes, flags=flags), dtype=torch.uint8)
            storages[place] = memory.untyped_storage()
        zeros = torch.empty(0, dtype=getattr(torch, layout["dtype"])).set_(
            storages[place], layout["offset"], layout["shape"], layout["stride"]
        )
        if layout["parameter"]:
            zeros = torch.nn.Parameter(zeros, layout["requires_grad"])
        blank[layout["name"]] = zeros
    return blank
