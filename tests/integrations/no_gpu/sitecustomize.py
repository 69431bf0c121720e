"""Lets torch_tensorrt be imported, convert and build on a machine without a GPU.

On ``PYTHONPATH`` it answers what torch_tensorrt asks of CUDA as an RTX 5090 would, once torch is imported, and stands
in for what only a GPU can do: TensorRT-RTX builds its plans on a CPU but does not load them there, so ``Engine`` has
the plan's bytes and is not run.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from types import SimpleNamespace
from typing import Any

_GPU = SimpleNamespace(
    name="NVIDIA GeForce RTX 5090", major=12, minor=0, multi_processor_count=170, total_memory=34_190_000_000
)


def answer(torch: Any) -> None:
    """Answer the questions that torch_tensorrt asks when it is imported, and before it converts."""
    torch.cuda.get_device_capability = lambda *_: (12, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_: _GPU
    torch.cuda.mem_get_info = lambda *_: (_GPU.total_memory, _GPU.total_memory)
    torch.Tensor.to = _stay(torch.Tensor.to)
    torch.nn.Module.to = _stay(torch.nn.Module.to)


def _stay(move: Any) -> Any:
    """Leave where it is what would be moved to a GPU."""

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        places = [*args, *kwargs.values()]
        return self if any(str(one).startswith("cuda") for one in places) else move(self, *args, **kwargs)

    return to


class Engine:
    """A plan that was built, in the place of the engine that a GPU would load it as."""

    def __init__(self, plan: Any) -> None:
        """Hold the plan's bytes."""
        self.plan = bytes(plan)

    def serialize(self) -> bytes:
        """Return the plan."""
        return self.plan

    def create_serialization_config(self) -> Any:
        """Return a configuration that takes every flag."""
        return SimpleNamespace(set_flag=lambda _: None, clear_flag=lambda _: None)

    def serialize_with_config(self, _config: Any) -> bytes:
        """Return the plan."""
        return self.plan

    def get_aliased_input_tensor(self, _name: str) -> None:
        """No output is an input."""


class Runtime:
    """Loads a plan as an ``Engine``."""

    def __init__(self, _logger: Any) -> None:
        """Need no GPU."""

    def deserialize_cuda_engine(self, plan: Any) -> Engine:
        """Return the plan as an engine."""
        return Engine(plan)


class TensorRT:
    """TensorRT, but for its runtime."""

    Runtime = Runtime

    def __getattr__(self, name: str) -> Any:
        """Return TensorRT's own."""
        import tensorrt

        return getattr(tensorrt, name)


def stand_in(_package: Any) -> None:
    """Let plans be loaded as ``Engine`` and runtime modules be made without being set up."""
    from torch_tensorrt.dynamo.conversion import _conversion, _TRTInterpreter
    from torch_tensorrt.dynamo.runtime import TorchTensorRTModule

    _TRTInterpreter.trt = _conversion.trt = TensorRT()
    _conversion.release_host_and_device_memory = lambda: None
    TorchTensorRTModule.setup_engine = lambda _self: None
    TorchTensorRTModule.set_output_tensors_as_unowned = lambda _self, _enabled: None


_THEN = {"torch": answer, "torch_tensorrt": stand_in}


class _After(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = PathFinder.find_spec(name, path, target) if name in _THEN else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _THEN[name])
        return spec


class _Loader(Loader):
    def __init__(self, loader: Any, then: Any) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        self._then(module)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, _After())
