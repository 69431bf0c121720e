"""Programs kept beside their engines, without weights, to rebuild engines after an upgrade without the models.

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
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from trtcache.compiler.program_file import without_classes
from trtcache.compiler.torch_flags import read_flags
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.cache import Cache
    from trtcache.frontends.source import CompileOptions
    from trtcache.runtime import Report

log = logging.getLogger(__name__)

KIND = "program"
PROGRAM, OPTIONS, FLAGS, STRUCTURES = "program.pt2", "asked.json", "flags.json", "structures.json"


@frozen_dataclass
class KeptOptions:
    """The options that a kept program was compiled with, as JSON values."""

    backend: str
    settings: Mapping[str, object]
    target: str | None

    @classmethod
    def of(cls, options: CompileOptions) -> KeptOptions:
        """Convert options; only settings that differ from their defaults are kept."""
        settings, default = options.settings, Settings()
        names = {field.name for field in fields(Settings)} - {
            "threads",
            "backends",
            "on_miss",
            "detach",
            *settings.sections,
        }
        changed = {name: getattr(settings, name) for name in sorted(names)}
        changed = {name: value for name, value in changed.items() if value != getattr(default, name)}
        changed = {name: sorted(value) if _is_names(value) else value for name, value in changed.items()}
        changed |= {name: section.explicit for name, section in settings.sections.items()}
        return cls(options.backend, {name: _plain(value) for name, value in changed.items()}, options.target)

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


def _is_names(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, Mapping))


def _plain(value: Any) -> Any:
    """Return a value as JSON; the order of a backend's own list may matter to it."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def keep(
    cache: Cache, report: Report, program: Callable[[], torch.export.ExportedProgram], options: KeptOptions
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
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        log.warning("the program of %s is not kept: it cannot be saved: %s", report.name, error)
        return
    contents = {PROGRAM: data.getvalue(), OPTIONS: options.write(), FLAGS: json.dumps(flags).encode()}
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
    storages: dict[int, torch.UntypedStorage] = {}

    def blank(tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.untyped_storage()
        if source.data_ptr() not in storages:
            storages[source.data_ptr()] = torch.zeros(source.nbytes(), dtype=torch.uint8).untyped_storage()
        zeros = torch.empty(0, dtype=tensor.dtype).set_(
            storages[source.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        return torch.nn.Parameter(zeros, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else zeros

    blanked = copy.copy(program)
    blanked._state_dict = {name: blank(tensor) for name, tensor in program.state_dict.items()}
    blanked._example_inputs = None  # users' data
    return blanked
