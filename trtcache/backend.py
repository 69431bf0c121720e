"""The public names for authors of backends (``docs/backends.md``).

Each name is loaded on first use. The functions that convert a program import ``torch.export`` or ``torch.onnx``, which
takes seconds: import them inside ``Backend.build``, since a hit does not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.backends.fitness import Check as Check
    from trtcache.backends.fitness import SelfTest as SelfTest
    from trtcache.backends.onnx_export import to_onnx as to_onnx
    from trtcache.backends.onnx_operators import OnnxModel as OnnxModel
    from trtcache.backends.onnx_operators import Range as Range
    from trtcache.backends.onnx_operators import why_no_onnx as why_no_onnx
    from trtcache.backends.program_forms import node_dtypes as node_dtypes
    from trtcache.backends.program_forms import to_exported_program as to_exported_program
    from trtcache.backends.program_forms import to_graph_module as to_graph_module
    from trtcache.backends.program_forms import to_module_with_weights as to_module_with_weights
    from trtcache.backends.protocol import Artifact as Artifact
    from trtcache.backends.protocol import Backend as Backend
    from trtcache.backends.protocol import Capabilities as Capabilities
    from trtcache.backends.protocol import Engine as Engine
    from trtcache.backends.protocol import Parallel as Parallel
    from trtcache.config.backend_settings import BackendSettings as BackendSettings
    from trtcache.errors import BackendUnavailableError as BackendUnavailableError
    from trtcache.errors import BuildError as BuildError
    from trtcache.errors import FrozenWeightsError as FrozenWeightsError
    from trtcache.errors import IncompatibleEngineError as IncompatibleEngineError
    from trtcache.errors import SettingsError as SettingsError
    from trtcache.errors import UnsupportedOperatorError as UnsupportedOperatorError
    from trtcache.lowering.interface import Interface as Interface
    from trtcache.lowering.program import LoweredProgram as LoweredProgram
    from trtcache.settings import Settings as Settings
    from trtcache.target import Gpu as Gpu
    from trtcache.target import Target as Target
    from trtcache.target import resolve_target as resolve_target
    from trtcache.weights.slots import Slot as Slot

_EXPORTS = {
    "Artifact": "trtcache.backends.protocol",
    "Backend": "trtcache.backends.protocol",
    "BackendSettings": "trtcache.config.backend_settings",
    "BackendUnavailableError": "trtcache.errors",
    "BuildError": "trtcache.errors",
    "Capabilities": "trtcache.backends.protocol",
    "Check": "trtcache.backends.fitness",
    "Engine": "trtcache.backends.protocol",
    "FrozenWeightsError": "trtcache.errors",
    "Gpu": "trtcache.target",
    "IncompatibleEngineError": "trtcache.errors",
    "Interface": "trtcache.lowering.interface",
    "LoweredProgram": "trtcache.lowering.program",
    "OnnxModel": "trtcache.backends.onnx_operators",
    "Parallel": "trtcache.backends.protocol",
    "SelfTest": "trtcache.backends.fitness",
    "Range": "trtcache.backends.onnx_operators",
    "Settings": "trtcache.settings",
    "SettingsError": "trtcache.errors",
    "Slot": "trtcache.weights.slots",
    "Target": "trtcache.target",
    "UnsupportedOperatorError": "trtcache.errors",
    "node_dtypes": "trtcache.backends.program_forms",
    "resolve_target": "trtcache.target",
    "to_exported_program": "trtcache.backends.program_forms",
    "to_graph_module": "trtcache.backends.program_forms",
    "to_module_with_weights": "trtcache.backends.program_forms",
    "to_onnx": "trtcache.backends.onnx_export",
    "why_no_onnx": "trtcache.backends.onnx_operators",
}

__all__ = [*sorted(_EXPORTS)]


__getattr__ = lazy_names(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return __all__
