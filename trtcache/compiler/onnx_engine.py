"""One ONNX file's way to its plan: by a memo, or by reading the file and, where there is no entry, building one."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.members import GRAPH
from trtcache.backends.tuning_cache import use_tuning_store
from trtcache.compiler.onnx_call import NamedCall
from trtcache.compiler.onnx_module import OnnxModule
from trtcache.compiler.supply import partition, supply
from trtcache.config import logs
from trtcache.frontends.onnx.alias import Memos
from trtcache.frontends.onnx.refit import Known
from trtcache.frontends.onnx.request import OnnxRequest, names_in, slots_frozen
from trtcache.frontends.onnx.tensors import tensor_of
from trtcache.keys.stored_graph import StoredGraph
from trtcache.runtime import Report
from trtcache.runtime.executable import Executable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trtcache.cache import Cache
    from trtcache.frontends.onnx.asked import Asked
    from trtcache.frontends.onnx.file import OnnxFile
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)


def device_here() -> torch.device:
    """Return where a plan's inputs and outputs are: on the GPU, or where there is none on the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


class Order:
    """What was asked of a file, and what came of it.

    Attributes:
        entry: the plan's, after ``obtain``.
    """

    entry: Entry

    def __init__(self, file: OnnxFile, asked: Asked, cache: Cache, *, name: str, folder: Path) -> None:
        """Ask for a file's plan; what is built is built in ``folder``."""
        logs.start(os.environ)
        self._file, self._asked, self._cache, self._name, self._folder = file, asked, cache, name, folder
        self._request: OnnxRequest | None = None
        self._names: tuple[str, ...] = ()
        self._why, self._memo_s, self._spared_s = "", 0.0, 0.0

    def obtain(self) -> Entry:
        """Find or build the plan's entry.

        Raises:
            OnnxFileError: the file is none, or is damaged.
            InputError: the sizes that were given are not the file's.
            ProfileError: the file leaves a size open, and the caller too.
            BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
            BuildError: the build failed.
        """
        start = time.perf_counter()
        memos = Memos(self._file, self._asked, self._cache)
        memo = memos.find() if self._cache.layers.stores else None
        entry = self._cache.peek(memo.key) if memo else None
        if memo and entry:
            self._request, self._names, self._spared_s = None, memo.names, memo.read_s
            self._memo_s = time.perf_counter() - start - entry.load_s
            self.entry = entry
            return entry
        self._request = request = OnnxRequest.of(self._file, self._asked, self._name)
        self.entry, self._why = supply(
            request.key,
            self._cache,
            lambda: self._build(request),
            kind=self._asked.backend.name,
            name=self._name,
            graph=lambda: StoredGraph.of(request.graph.document()),
        )
        self._names = tuple(slot.names[0] for slot in request.graph.slots)
        memos.keep(request)
        return self.entry

    def _build(self, request: OnnxRequest) -> dict[str, bytes | Path]:
        log.info("building %s for %s", self._name, self._asked.target.label)
        return request.members(request.build(self._folder))

    def module(self) -> OnnxModule:
        """Return the compiled module of the entry that was obtained.

        Raises:
            IncompatibleEngineError: the plan cannot be loaded here.
            OnnxFileError: the file was written to meanwhile.
        """
        start = time.perf_counter()
        executable, here = self._executable(), device_here()
        given = {} if slots_frozen(self.entry.key) else self._weights()
        with use_tuning_store(self._cache):
            engine = self._asked.backend.load_entry(self.entry.read, device=here, constants={}, weights=given)
        self._file.check_unchanged()
        self._file.release()  # the module keeps the file for its weights, and not all of it in memory
        module = OnnxModule(executable, engine, NamedCall(*self._border()), self._known(executable), self._weights)
        module.report = self.report(time.perf_counter() - start)
        return module

    def _executable(self) -> Executable:
        """Return the border, with its tensors where plans have them here."""
        here, known = device_here(), frozenset(self._names)
        if self._request is None:
            names = [(name,) for name in self._names]
            found = Executable.from_entry(self.entry, names=names, known=known, sources={}, device=here)
        else:
            found = Executable(self._request.interface, here, {}, known, {})
        interface = replace(
            found.interface,
            inputs=tuple(replace(one, device=here.type) for one in found.interface.inputs),
            outputs=tuple(replace(one, device=here.type) for one in found.interface.outputs),
        )
        return replace(found, interface=interface)

    def _weights(self) -> Mapping[str, torch.Tensor]:
        """Return the file's weights by the plan's names for them; the file is parsed for it."""
        initializers = self._file.initializers
        return {f"w{at}": tensor_of(self._file, initializers[name]) for at, name in enumerate(self._names)}

    def _border(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self._request is None:
            return names_in(self.entry.key)
        border = self._request.border
        return tuple(port.name for port in border.inputs), tuple(port.name for port in border.outputs)

    def _known(self, executable: Executable) -> Known:
        slots = executable.interface.slots
        if self._request is not None:
            document, graph = self._request.graph.document, self._request.graph
            return Known(str(graph.digest), graph.opsets, slots, lambda: StoredGraph.of(document()))
        parts: Any = self.entry.key.document["parts"]
        content = bytes(self.entry.read(GRAPH))
        return Known(parts["graph"]["$digest"], parts["opsets"], slots, lambda: StoredGraph.of(json.loads(content)))

    def report(self, load_s: float = 0.0) -> Report:
        """Return what was done."""
        entry, request = self.entry, self._request
        key = request.key if request else entry.key
        one = partition(key, entry, weights=len(self._names), load_s=load_s, why=self._why)
        return Report(
            name=self._name,
            backend=self._asked.backend.name,
            target=self._asked.target.label,
            partitions=[one],
            route="read" if request else "memo",
            memo_s=self._memo_s,
            spared_s=self._spared_s,
            lower_s=request.read_s if request else 0.0,
            key_s=request.key_s if request else 0.0,
        )
