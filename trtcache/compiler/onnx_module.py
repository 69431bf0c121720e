"""The compiled module of an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.frontends.onnx.file import SUFFIX
from trtcache.frontends.onnx.refit import weights_in
from trtcache.runtime import CompiledModule
from trtcache.weights.slots import EngineWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from trtcache.backends.protocol import Engine
    from trtcache.frontends.onnx.refit import Known
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.report import RefitReport
    from trtcache.runtime.signature import CallSignature
    from trtcache.runtime.weight_source import Weights


class OnnxModule(CompiledModule):
    """A plan of an ONNX file: called with tensors in the file's order or by its names, answers with a tuple."""

    def __init__(
        self,
        executable: Executable,
        engine: Engine,
        call: CallSignature,
        known: Known,
        weights: Callable[[], Mapping[str, torch.Tensor]],
    ) -> None:
        """Put a plan behind a file's border.

        Args:
            executable: the border.
            engine: the plan.
            call: how arguments and outputs are flattened.
            known: what is known of the file's graph, to compare other files with.
            weights: returns the plan's weights by its names for them; it is asked before the first refit.
        """
        super().__init__(executable, engine, {}, call)
        self._graph = known
        self._read_weights = weights

    def refit(
        self,
        weights: Weights,
        *,
        verify: bool | float = False,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RefitReport:
        """Put other weights into the plan: of another ONNX file of the same graph, whatever it calls them, or by name.

        Args:
            weights: the path of an ``.onnx`` file, or weights by this file's names for them, as of ``CompiledModule``.
            verify: as of ``CompiledModule``.
            args: as of ``CompiledModule``.
            kwargs: as of ``CompiledModule``.

        Raises:
            RefitError: a weight is missing, unknown, or of another shape or dtype, or the file's graph is another; the
                old weights are still in place.
            OnnxFileError: the file cannot be read.
            NoDeviceError: there is no GPU.
        """
        if isinstance(weights, (str, os.PathLike)) and Path(weights).suffix == SUFFIX:
            weights = weights_in(Path(weights), self._graph)
        if not self._weights:
            self._weights = EngineWeights(self._read_weights())
        return super().refit(weights, verify=verify, args=args, kwargs=kwargs)
