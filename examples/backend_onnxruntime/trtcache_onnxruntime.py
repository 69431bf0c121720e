"""ONNX Runtime as a backend of trtcache: models on the CPU, with weights that are inputs of the ONNX model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from trtcache.backend import (
    Artifact,
    Backend,
    BackendSettings,
    BuildError,
    Capabilities,
    Engine,
    IncompatibleEngineError,
    Interface,
    LoweredProgram,
    OnnxModel,
    Range,
    Settings,
    Target,
    node_dtypes,
    resolve_target,
    why_no_onnx,
)

# On the CPU, ONNX Runtime lacks many operators for other dtypes.
_DTYPES = frozenset({torch.float32, torch.float64, torch.int64, torch.int32, torch.bool})
_LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "all": "ORT_ENABLE_ALL"}


@dataclass(frozen=True, slots=True)
class OnnxRuntimeSettings(BackendSettings):
    """Settings of ONNX Runtime.

    Attributes:
        optimization: the optimizations of the graph at build time.
    """

    section: ClassVar[str] = "onnxruntime"

    optimization: Literal["none", "basic", "all"] = "all"


class OnnxRuntime(Backend):
    """ONNX Runtime on the CPU, whose reductions lose NaN: where torch returns NaN, they may return a number."""

    name: ClassVar[str] = "onnxruntime"
    version: ClassVar[str] = "1.0"
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu"}),
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        small_sizes=True,
        accepts=frozenset({"torch", "onnx"}),
    )
    settings_class = OnnxRuntimeSettings

    def unavailable(self, device: str) -> str | None:
        """Return what is missing on this machine."""
        if device != "cpu":
            return f"runs on the CPU, not on {device}"
        return None if find_spec("onnxruntime") else "ONNX Runtime is not installed: pip install onnxruntime"

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named x86-64 level."""
        return resolve_target(requested, device=device.type)

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the versions of what exports, optimizes and runs a model."""
        return {name: version(name) for name in ("onnxruntime", "torch", "onnx", "onnxscript")}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting affects a build."""
        return {}

    def why_not(self, node: torch.fx.Node) -> str | None:
        """Return why a node has to stay in torch: its dtype, or it has no ONNX."""
        if others := node_dtypes(node) - _DTYPES:
            return f"ONNX Runtime lacks operators for {min(map(str, others))} on the CPU"
        return why_no_onnx(node)

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Export the program and store the optimized model."""
        from trtcache.backend import to_onnx  # takes seconds; a hit does not need it

        return self._optimize(to_onnx(program, self.name).content, settings, target, folder)

    def build_onnx(
        self,
        model: OnnxModel,
        interface: Interface,
        ranges: Sequence[Range],
        settings: Settings,
        target: Target,
        folder: Path,
    ) -> Artifact:
        """Store the optimized model of an ONNX file, whose weights are inputs."""
        names = [weight.name for weight in interface.weights]
        return self._optimize(model.serialize(names), settings, target, folder)

    def _optimize(self, content: bytes, settings: Settings, target: Target, folder: Path) -> Artifact:
        own = settings.section(OnnxRuntimeSettings)
        # "all" has layouts for this processor: not for a named level, which is for others.
        level = "basic" if own.optimization == "all" and target.level != "native" else own.optimization
        path = folder / "engine.onnx"
        try:
            _session(content, level, save=path)
        except Exception as error:
            raise BuildError(self.name, str(error)) from error
        return Artifact(path)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> OnnxRuntimeEngine:
        """Load a stored model; it contains its constants."""
        try:
            session = _session(bytes(artifact), "none")
        except Exception as error:
            raise IncompatibleEngineError(self.name, str(error)) from error
        return OnnxRuntimeEngine(session, weights)


class OnnxRuntimeEngine(Engine):
    """A loaded model with weights, whose memory it reads in each call."""

    shares_weights: ClassVar[bool] = True

    def __init__(self, session: Any, weights: Mapping[str, torch.Tensor]) -> None:
        """Check that every weight is set."""
        names = [given.name for given in session.get_inputs()]
        if missing := [name for name in names if re.fullmatch(r"w\d+", name) and name not in weights]:
            raise IncompatibleEngineError("onnxruntime", f"{', '.join(missing)} is unset")
        self._session, self._weights = session, {name: weights[name] for name in names if name in weights}
        self._inputs = [name for name in names if name not in weights]

    def refit(self, weights: Mapping[str, torch.Tensor]) -> OnnxRuntimeEngine:
        """Return an engine of the same session with other weights."""
        return OnnxRuntimeEngine(self._session, weights)

    def parallel(self, calls: int) -> OnnxRuntimeEngine:
        """Return this engine: a session accepts any number of calls at once."""
        return self

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the model."""
        given = {**dict(zip(self._inputs, inputs, strict=True)), **self._weights}
        arrays = {name: tensor.detach().contiguous().numpy() for name, tensor in given.items()}
        return [torch.as_tensor(result) for result in self._session.run(None, arrays)]


def _session(content: bytes, level: str, *, save: Path | None = None) -> Any:
    """Return a session of a model, and store the optimized model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
    options.log_severity_level = 3
    if save is not None:
        options.optimized_model_filepath = str(save)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
