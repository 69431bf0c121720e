"""A backend for tests: it runs the lowered graph with torch itself, so that a build takes milliseconds.

It is stricter than it needs to be: it reads memory by the strides it was promised, as compiled code does, and refuses
whatever else it is given. An artifact is the number of a graph that this process keeps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import fx

from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import Artifact, Backend, Capabilities, Engine
from trtcache.errors import IncompatibleEngineError
from trtcache.lowering.rewriting import contiguous_arguments
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings

_GRAPHS: list[tuple[fx.GraphModule, tuple[torch.Tensor, ...]]] = []


class Interpreter(Backend):
    """Runs any lowered program on the CPU, slowly."""

    name: ClassVar[str] = "interpreter"
    version: ClassVar[int] = 1
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu"}),
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        small_sizes=True,
        torch_threads=True,
    )

    def unavailable(self, device: str) -> str | None:
        """Say that there is only the CPU."""
        return None if device == "cpu" else f"runs on the CPU, not on {device}"

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named level."""
        return resolve_target(requested, device=device.type)

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the version of torch, and the process: another one has other graphs under these numbers."""
        return {"torch": torch.__version__, "process": os.getpid()}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting changes what is built."""
        return {}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Keep the graph and return its number."""
        module, examples = to_module_with_weights(program)
        for node in list(module.graph.nodes):
            for place in contiguous_arguments(node):
                with module.graph.inserting_before(node):
                    source = module.graph.call_function(torch.ops.aten.contiguous.default, (node.args[place],))
                node.update_arg(place, source)
        module.recompile()
        _GRAPHS.append((module, examples))
        artifact = folder / "engine.txt"
        artifact.write_text(f"graph {len(_GRAPHS) - 1}")
        return Artifact(artifact)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> Interpretation:
        """Return the graph with its constants and weights in place."""
        word, _, number = bytes(artifact).decode(errors="replace").partition(" ")
        if word != "graph" or not number.isdigit() or int(number) >= len(_GRAPHS):
            raise IncompatibleEngineError("interpreter", "not a graph of this process")
        return Interpretation(int(number), constants, weights)


class Interpretation(Engine):
    """A kept graph with weights in it."""

    shares_weights: ClassVar[bool] = True

    def __init__(self, number: int, constants: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
        """Put constants and weights where the graph wants them, and refuse any that do not lie as promised."""
        kept, self._examples = _GRAPHS[number]
        self._number, self._constants = number, constants
        given = {**constants, **weights}
        root = torch.nn.Module()
        for name, promised in kept.named_buffers():
            if name not in given:
                raise IncompatibleEngineError("interpreter", f"{name} is unset")
            _check(name, promised, given[name])
            root.register_buffer(name, given[name])
        self._graph = fx.GraphModule(root, kept.graph)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Interpretation:
        """Return the same graph with other weights."""
        return Interpretation(self._number, self._constants, weights)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the graph."""
        for index, (promised, given) in enumerate(zip(self._examples, inputs, strict=True)):
            _check(f"input {index}", promised, given)
        with torch.no_grad():
            outputs = list(self._graph(*inputs))
        # The caller may write to outputs.
        kept = {one.untyped_storage().data_ptr() for one in self._constants.values() if one.numel()}
        return [one.clone() if one.untyped_storage().data_ptr() in kept else one for one in outputs]


def _check(name: str, promised: torch.Tensor, given: torch.Tensor) -> None:
    assert given.dtype == promised.dtype, f"{name}: {given.dtype}, promised {promised.dtype}"
    assert given.device.type == promised.device.type, f"{name}: on {given.device}"
    assert not given.is_conj(), f"{name} is conjugated lazily"
    assert not given.is_neg(), f"{name} is negated lazily"
    if all(type(size) is int for size in (*promised.shape, *promised.stride())):
        assert given.shape == promised.shape, f"{name}: {given.shape}, promised {promised.shape}"
        assert given.stride() == promised.stride(), f"{name}: {given.stride()}, promised {promised.stride()}"
