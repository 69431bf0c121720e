"""A torch_tensorrt and a TensorRT that are not there: packages with the contract of a version, that build in no time.

Written from what the adapter relies on: names, parameters, layouts of tuples, and the order in which the engine cache
is asked. What an engine is made of is in its bytes, so a test can see which program's engine it was given. Builds and
refits are written to the file that ``STAND_IN_LOG`` names, so that they are counted over processes. The real packages
are in ``real``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.integrations.torch_tensorrt.installation import CONTRACTS, ENGINE

if TYPE_CHECKING:
    from pathlib import Path

TENSORRT = """
__version__ = "10.16.1"
class _Creator:
    plugin_namespace, name, plugin_version = "", "Scale", "1"
class _Registry:
    all_creators = [_Creator]
def get_plugin_registry():
    return _Registry
"""

PACKAGE = """
from typing import NamedTuple
import torch
__version__ = "{version}"
class FeatureSet(NamedTuple):
    refit: bool = True
    tensorrt_rtx: bool = False
ENABLED_FEATURES = FeatureSet()
class _Gpu:
    name, major, minor, multi_processor_count, total_memory = "NVIDIA L4", 8, 9, 58, 23_600_000_000
torch.cuda.get_device_properties = lambda device: _Gpu
class Device:
    device_type, gpu_id, dla_core, allow_gpu_fallback = "GPU", 0, -1, False
class Input:
    def __init__(self, tensor, **given):
        self.shape, self.dtype, self.torch_tensor = tuple(tensor.shape), tensor.dtype, tensor
        vars(self).update(given)
import torch_tensorrt.dynamo._compiler
"""

SETTINGS = """
from dataclasses import dataclass, field
from torch_tensorrt import Device
@dataclass
class CompilationSettings:
    immutable_weights: bool = True
    cache_built_engines: bool = False
    reuse_cached_engines: bool = False
    sparse_weights: bool = False
    refit_identical_engine_weights: bool = False
    enable_cross_compile_for_windows: bool = False
    optimization_level: int | None = None
    workspace_size: int = 0
    min_block_size: int = 5
    timing_cache_path: str = "/tmp/timing_cache.bin"
    enabled_precisions: set = field(default_factory=set)
    torch_executed_ops: set = field(default_factory=set)
    device: Device = field(default_factory=Device)
"""

REGISTRY = """
from dataclasses import dataclass
from typing import Any
@dataclass
class ConverterSupport:
    converter_implementation: Any
    capability_validator: Any = lambda node, settings: True
class Registry:
    def __init__(self):
        self.registries, self.asked = [{}], []
    def set_compilation_settings(self, settings):
        self.settings = settings
    def get(self, node):
        self.asked.append(node.target)
        for one in self.registries[0].get(node.target, ()):
            if one.capability_validator(node, self.settings):
                return one.converter_implementation, None, {}
DYNAMO_CONVERTERS = Registry()
"""

CONVERSION = """
import os
from typing import Any, NamedTuple
from torch_tensorrt.dynamo._settings import CompilationSettings
class {result_type}(NamedTuple):
{fields}
MAP = {weight_name_map!r}
class TRTInterpreter:
    def __init__(self):
        pass
class TorchTensorRTModule:
    def __init__(self, engine, result):
        log("load")
        if b"refused" in engine:
            raise RuntimeError("TensorRT does not load this engine")
        self.serialized_engine, self.result = engine, result
def log(line):
    with open(os.environ["STAND_IN_LOG"], "a") as file:
        file.write(line + "\\n")
def extract_symbolic_shape_expressions(module):
    return dict(inputs=[node.name for node in module.graph.nodes if node.op == "placeholder"], outputs=[])
def weights(module):
    return repr(sorted((name, tensor.tolist()) for name, tensor in module.state_dict().items()))
def build(module, settings):
    log("build")
    return module.code.encode()
def interpret_module_to_result({parameters}):
    serving = engine_cache is not None and not settings.immutable_weights
    asked = engine_cache.get_hash(module, inputs, settings) if serving else None
    if settings.reuse_cached_engines and serving:
        cached = engine_cache.check(asked)
        if cached is not None:
            ({cached}) = cached
            assert compilation_settings == settings and input_specs == inputs
            log("refit")
            return made(module, bytes(serialized_engine), input_names, output_names{given})
    engine = build(module, settings)
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    weight_name_map = None if settings.immutable_weights else MAP
    result = made(module, engine, names, ["output0"]{defaults})
    if settings.cache_built_engines and serving and engine_cache.check(asked) is None:
        input_specs, compilation_settings = inputs, settings
        serialized_engine, input_names, output_names = engine, names, ["output0"]
        {unpacked}
        engine_cache.insert(asked, ({cached}))
    return result
def made(module, engine, input_names, output_names{signature}):
    values = dict(locals(), serialized_engine=engine + b"|" + weights(module).encode())
    values["symbolic_shape_expressions"] = extract_symbolic_shape_expressions(module)
    return {result_type}(**{{name: values[name] for name in {result_type}._fields}})
def convert_module(module, inputs, settings=CompilationSettings(), name="", engine_cache=None):
    result = interpret_module_to_result(module, inputs, settings, engine_cache=engine_cache)
    return TorchTensorRTModule(result.serialized_engine, result)
"""

COMPILER = """
from torch_tensorrt.dynamo.conversion import convert_module, interpret_module_to_result
def compile_partition(module, inputs, settings, name="_run_on_acc_0"):
    return convert_module(module, inputs, settings=settings, name=name)
"""

VALUES: dict[str, Any] = {
    "weight_name_map": {"conv KERNEL": ["conv.weight", None], "constant_mapping": {}},
    "requires_output_allocator": True,
    "requires_native_multidevice": False,
    "aliased_io": {"output0": ("x", "user")},
}
"""What the stand-in's results say beside names and engines."""


def write(folder: Path, version: str, *, breach: str = "") -> Path:
    """Write the packages below ``folder`` and return it. ``breach`` is a parameter that the version does not have."""
    contract = CONTRACTS[".".join(version.split(".")[:2])]
    defaults = {"engine_cache": "None", "settings": "CompilationSettings()"}
    parameters = [
        f"{name}={defaults.get(name, 'None')}" if name not in {"module", "inputs"} else name
        for name in (*contract.parameters, *filter(None, [breach]))
    ]
    rest = [name for name in contract.cached if name in VALUES]
    said = [name for name in contract.result if name in VALUES]
    conversion = CONVERSION.format(
        result_type=contract.result_type,
        fields="\n".join(f"    {name}: Any" for name in contract.result),
        parameters=", ".join(parameters),
        cached=", ".join(contract.cached),
        given="".join(f", {name}={name}" for name in rest),
        defaults="".join(f", {name}={_said(name)}" for name in said),
        weight_name_map=VALUES["weight_name_map"],
        signature="".join(f", {name}=None" for name in said),
        unpacked="; ".join(f"{name} = {_said(name)}" for name in rest),
    )
    assert ENGINE in contract.cached
    files = {
        "tensorrt.py": TENSORRT,
        "torch_tensorrt/__init__.py": PACKAGE.format(version=version),
        "torch_tensorrt/dynamo/__init__.py": "",
        "torch_tensorrt/dynamo/_settings.py": SETTINGS,
        "torch_tensorrt/dynamo/_compiler.py": COMPILER,
        "torch_tensorrt/dynamo/_engine_cache.py": "class BaseEngineCache:\n    pass\n",
        "torch_tensorrt/dynamo/conversion/__init__.py": (
            "from ._conversion import convert_module, interpret_module_to_result\n"
        ),
        "torch_tensorrt/dynamo/conversion/_conversion.py": conversion,
        "torch_tensorrt/dynamo/conversion/_ConverterRegistry.py": REGISTRY,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _said(name: str) -> str:
    return name if name == "weight_name_map" else repr(VALUES[name])
