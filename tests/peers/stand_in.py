"""A stand-in for ``torch_tensorrt``, so that its tests can be imported and their models collected without a GPU.

``compile``, ``dynamo.trace`` and ``Input`` do as much as it takes to export a test's model with its sizes; everything
else is a mock. A test fails where it looks at an engine, which is after its model was collected.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tests.peers.capture import COMPILE, Lazily

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.peers.capture import Recorder

_MOCKED = ("torch_tensorrt", "tensorrt", "tensorrt_rtx", "modelopt", "torchvision", "timm")


class Input:
    """What ``torch_tensorrt.Input`` says of a tensor: its sizes, least, usual and most."""

    def __init__(self, shape: Any = None, *, dtype: Any = torch.float32, name: str = "", **others: Any) -> None:
        """Keep the sizes."""
        self.shape = tuple(others.get("opt_shape") or shape)
        self.least = tuple(others.get("min_shape") or self.shape)
        self.most = tuple(others.get("max_shape") or self.shape)
        self.dtype = dtype if isinstance(dtype, torch.dtype) else torch.float32
        self.name, self.shared = name, dict(others.get("shared_dims") or {})

    def tensor(self) -> torch.Tensor:
        """Return an example of the usual sizes."""
        if self.dtype.is_floating_point:
            return torch.randn(self.shape).to(self.dtype)
        return torch.randint(0, 2, self.shape).to(self.dtype)

    def dims(self, dims: dict[str, Any], place: str) -> dict[int, Any]:
        """Return a dimension for each size that varies."""
        varying = {}
        for axis, (least, most) in enumerate(zip(self.least, self.most, strict=True)):
            if least != most:
                name = self.shared.get(axis) or f"{self.name or place}_{axis}"
                varying[axis] = dims.setdefault(name, torch.export.Dim(name, min=least, max=most))
        return varying


class OnCpu(TorchFunctionMode):
    """Run on the CPU what asks for CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the device in a call."""
        if func is torch.Tensor.cuda:
            return args[0]
        args, kwargs = pytree.tree_map(_on_cpu, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)


def _on_cpu(value: Any) -> Any:
    if (isinstance(value, torch.device) and value.type == "cuda") or (isinstance(value, str) and value[:4] == "cuda"):
        return torch.device("cpu")
    return value


@contextmanager
def no_gpu() -> Iterator[None]:
    """Run a test as if there were a GPU, on the CPU: many are skipped where ``torch.cuda`` has none."""
    answers = {name: mock.MagicMock(name=name) for name in ("synchronize", "empty_cache", "get_device_properties")}
    answers |= {"is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0}
    answers |= {"get_device_capability": lambda *_: (9, 0), "manual_seed_all": lambda _: None}
    with OnCpu(), mock.patch.multiple(torch.cuda, **answers):
        yield


def install(recorder: Recorder) -> None:
    """Make ``torch_tensorrt`` importable, and collect what is compiled with it or with ``torch.compile``."""

    def export(
        model: Any, inputs: Any = None, *_: Any, arg_inputs: Any = None, kwarg_inputs: Any = None, **more: Any
    ) -> Any:
        if isinstance(model, torch.export.ExportedProgram):
            return model
        examples, varying = _examples(inputs if inputs is not None else arg_inputs, kwarg_inputs)
        more = {
            name: value for name, value in more.items() if name in {"strict", "dynamic_shapes"} and value is not None
        }
        more.setdefault("dynamic_shapes", varying)
        return torch.export.export(model, *examples, **more)

    def compiled(model: Any, ir: str = "dynamo", inputs: Any = None, **options: Any) -> Any:
        if ir == "torch_compile":
            return Lazily(model, recorder)
        return export(model, inputs, **options).module()

    def dynamo_compiled(model: Any, inputs: Any = None, **options: Any) -> Any:
        return export(model, inputs, **options).module()

    recorder.is_rewritten = True
    known = {
        "torch_tensorrt": {"compile": compiled, "Input": Input},
        "torch_tensorrt._Input": {"Input": Input},
        "torch_tensorrt.dynamo": {"compile": dynamo_compiled, "trace": export},
        "torch_tensorrt.dynamo._tracer": {"trace": export},
        "torch_tensorrt.dynamo.utils": {"COSINE_THRESHOLD": 0.99, "ATOL": 1e-3, "RTOL": 1e-2},
    }
    sys.meta_path.append(_Finder(known))

    def compile_lazily(model: Any = None, *args: Any, **options: Any) -> Any:
        return Lazily(model, recorder) if isinstance(model, torch.nn.Module) else COMPILE(model, *args, **options)

    torch.compile = compile_lazily


def _examples(inputs: Any, named: Any) -> tuple[tuple[Any, ...], Any]:
    """Return example arguments, and their dynamic shapes: None where no size varies."""
    given: tuple[Any, ...] = tuple(inputs) if isinstance(inputs, (list, tuple)) else () if inputs is None else (inputs,)
    dims: dict[str, Any] = {}

    def varying(value: Any, place: str) -> Any:
        if isinstance(value, Input):
            return value.dims(dims, place)
        if isinstance(value, (list, tuple)):
            return type(value)(varying(one, f"{place}_{n}") for n, one in enumerate(value))
        if isinstance(value, dict):
            return {name: varying(one, f"{place}_{name}") for name, one in value.items()}
        return None

    shapes = (varying(given, "arg"), varying(dict(named or {}), "kwarg"))
    args, kwargs = pytree.tree_map(
        lambda one: one.tensor() if isinstance(one, Input) else one, (given, dict(named or {}))
    )
    if not dims:
        return (args, kwargs), None
    # torch.export reads a tuple as the positional arguments; with named ones it wants their names, which are not here.
    return (args, kwargs), (*shapes[0], *shapes[1].values())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, known: dict[str, dict[str, Any]]) -> None:
        self._known = known

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _MOCKED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name, self._known.get(spec.name, {}))

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Module(types.ModuleType):
    """A module in which every name stands for something."""

    def __init__(self, name: str, known: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__.update(known)
        self.__path__: list[str] = []
        self.__version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value
