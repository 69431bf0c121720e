"""What a runner asks of TensorRT and of CUDA, done by the CPU: an engine that doubles its inputs.

It is stricter than it needs to be: it knows every address that it was told, and refuses those that TensorRT would.
"""

from __future__ import annotations

import ctypes
import enum
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trtcache.backends.tensorrt.runner import DeviceContext

DataType = enum.Enum("DataType", "FLOAT HALF BF16 INT8 INT32 INT64 UINT8 BOOL FP8 INT4")
TensorLocation = enum.Enum("TensorLocation", "DEVICE HOST")

Shape = tuple[int, ...]


class Trt:
    """The module."""

    DataType = DataType
    TensorLocation = TensorLocation


@dataclass
class Tensor:
    """An input or output of the engine."""

    dtype: Any = DataType.FLOAT
    location: Any = TensorLocation.DEVICE
    alias: str | None = None


@dataclass
class Engine:
    """An engine whose outputs are made of its inputs.

    Attributes:
        tensors: its inputs and outputs by name, outputs begin with ``out``.
        shape: an output's shape, given the shapes of the inputs.
        compute: writes the outputs, given inputs and outputs by name.
        torches: what the fake reads memory as.
    """

    tensors: dict[str, Tensor]
    shape: Callable[[str, Mapping[str, Shape]], Shape]
    compute: Callable[[Mapping[str, torch.Tensor]], None]
    contexts: list[Context] = field(default_factory=list)
    memory: bool = True

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    def get_tensor_name(self, number: int) -> str:
        return list(self.tensors)[number]

    def get_tensor_dtype(self, name: str) -> Any:
        return self.tensors[name].dtype

    def get_tensor_location(self, name: str) -> Any:
        return self.tensors[name].location

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self.tensors[name].alias

    def create_execution_context(self) -> Context | None:
        if not self.memory:
            return None
        self.contexts.append(Context(self))
        return self.contexts[-1]


@dataclass
class Context:
    """What one thread runs on."""

    engine: Engine
    shapes: dict[str, Shape] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    streams: list[int] = field(default_factory=list)
    most: int = 64

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        self.shapes[name] = shape
        return all(size <= self.most for size in shape)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return address != 0 and address % 256 == 0

    def infer_shapes(self) -> list[str]:
        inputs = [name for name in self.engine.tensors if not name.startswith("out")]
        return [name for name in inputs if name not in self.shapes]

    def get_tensor_shape(self, name: str) -> Shape:
        return self.engine.shape(name, self.shapes) if name.startswith("out") else self.shapes[name]

    def execute_async_v3(self, stream_handle: int) -> bool:
        self.streams.append(stream_handle)
        self.engine.compute({name: self._tensor(name) for name in self.engine.tensors})
        return True

    def _tensor(self, name: str) -> torch.Tensor:
        shape, dtype = self.get_tensor_shape(name), TORCHES[self.engine.tensors[name].dtype]
        size = dtype.itemsize * torch.Size(shape).numel()
        if not size:
            return torch.empty(shape, dtype=dtype)
        memory = (ctypes.c_uint8 * size).from_address(self.addresses[name])
        return torch.frombuffer(memory, dtype=dtype).view(shape)


TORCHES = {
    DataType.FLOAT: torch.float32,
    DataType.HALF: torch.float16,
    DataType.INT64: torch.int64,
    DataType.BOOL: torch.bool,
    DataType.INT4: torch.uint8,
}


@dataclass(eq=False)
class Stream:
    """A stream that notes what it waits for."""

    cuda_stream: int
    waited: list[int] = field(default_factory=list)
    synchronized: int = 0

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other.cuda_stream)

    def synchronize(self) -> None:
        self.synchronized += 1


class Cpu:
    """A place that is the CPU, with a stream that a test can change."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.current = Stream(1)
        self.held: list[tuple[Shape, int]] = []

    def activate(self) -> nullcontext[None]:
        return nullcontext()

    def stream(self) -> Stream:
        return self.current

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        self.held.append((tuple(tensor.shape), stream.cuda_stream))


def is_place(cpu: Cpu) -> DeviceContext:
    """Let the type checker compare the fake with what it stands for."""
    return cpu
