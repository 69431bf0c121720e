"""Execution of a plan on its GPU, with its inputs and outputs as bindings.

It supports static and profiled shapes, with a context per thread, the caller's stream and torch's memory. Experimental:
written against the bindings of TensorRT-RTX 1.4 to 1.7 and TensorRT 10.15 and 11.4, and not yet run on a GPU.
Data-dependent sizes and CUDA graphs are not supported.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trtcache.backends.tensorrt.callbacks import get_logger
from trtcache.backends.tensorrt.preflight import PlanFacts, why_invalid
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RunError

if TYPE_CHECKING:
    from trtcache.backends.tensorrt.flavour import Flavour

_ALIGNMENT_BYTES = 256  # NvInferRuntime.h, IExecutionContext::setTensorAddress


@frozen_dataclass
class Binding:
    """One input or output of an engine.

    One that is ``on_host`` is read or written on the CPU, such as the sizes of a reshape; one with a ``source`` is an
    output that must share the memory of the input of that name.
    """

    name: str
    dtype: torch.dtype
    on_host: bool
    source: str | None = None


def dtypes_of(trt: Any) -> dict[Any, torch.dtype]:
    """Return torch's dtype for each of TensorRT's that an input or output can have."""
    kinds = trt.DataType
    return {
        kinds.FLOAT: torch.float32,
        kinds.HALF: torch.float16,
        kinds.BF16: torch.bfloat16,
        kinds.INT8: torch.int8,
        kinds.INT32: torch.int32,
        kinds.INT64: torch.int64,
        kinds.UINT8: torch.uint8,
        kinds.BOOL: torch.bool,
        kinds.FP8: torch.float8_e4m3fn,
    }


def binding_of(engine: Any, name: str, dtypes: Mapping[Any, torch.dtype], host: Any) -> Binding:
    """Describe one of an engine's inputs or outputs.

    Raises:
        IncompatibleEngineError: torch does not have its dtype.
    """
    dtype = dtypes.get(engine.get_tensor_dtype(name))
    if dtype is None:
        raise IncompatibleEngineError("plan", f"{name} is {engine.get_tensor_dtype(name)}, which torch does not have")
    return Binding(name, dtype, engine.get_tensor_location(name) == host, engine.get_aliased_input_tensor(name))


class DeviceContext(Protocol):
    """The device of a plan's inputs and outputs, and the stream of its calls."""

    device: torch.device

    def activate(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes this the current device."""
        ...

    def stream(self) -> Any:
        """Return the caller's stream."""
        ...

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep a tensor's memory alive until the stream's pending work is done."""
        ...


class CudaDevice:
    """A CUDA device."""

    def __init__(self, device: torch.device) -> None:
        """Use the model's GPU, or the current one for a model on the CPU."""
        self.device = device if device.type == "cuda" else torch.device("cuda", torch.cuda.current_device())

    def activate(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes this the current device."""
        return torch.cuda.device(self.device)

    def stream(self) -> Any:
        """Return torch's current stream of this device."""
        return torch.cuda.current_stream(self.device)

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Record the stream in torch's allocator."""
        tensor.record_stream(stream)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Return a new tensor with an address that TensorRT accepts: a multiple of 256 and never null."""
    size = dtype.itemsize
    for size_ in shape:
        size *= size_
    memory = torch.empty(size + 2 * _ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -memory.data_ptr() % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).view(tuple(shape))


def place_tensor(tensor: torch.Tensor, device: torch.device | str, *, private: bool) -> torch.Tensor:
    """Return a tensor on a device with an address that TensorRT accepts; itself if that holds and it may be shared."""
    tensor = tensor.detach().to(device)
    if tensor.is_contiguous() and not private and tensor.numel() and tensor.data_ptr() % _ALIGNMENT_BYTES == 0:
        return tensor
    return empty(tensor.shape, tensor.dtype, device).copy_(tensor)


def address(tensor: torch.Tensor) -> int:
    """Return a tensor's address; without elements, an aligned address in its storage."""
    storage = tensor.untyped_storage().data_ptr()
    return tensor.data_ptr() or storage + -storage % _ALIGNMENT_BYTES


@dataclass(slots=True)
class _Thread:
    """The state of one thread: its context, its last stream, and host memory that TensorRT may still read."""

    context: Any
    stream: Any = None
    kept: list[torch.Tensor] = field(default_factory=list)


def deserialize(
    trt: Any, flavour: Flavour, plan: bytes | memoryview, facts: PlanFacts | None = None
) -> tuple[Any, Any]:
    """Return a runtime and the engine of a plan.

    A version-compatible plan contains a runtime, which TensorRT runs if host code is allowed, and cannot be loaded
    otherwise. Host code is not allowed in any other plan. The facts are authenticated as the plan is.

    Raises:
        IncompatibleEngineError: TensorRT cannot load the plan.
        NoDeviceError: TensorRT-RTX reports that this machine cannot run it.
    """
    logger, router = get_logger(trt)
    with router.collect_errors() as errors:
        runtime = trt.Runtime(logger)
        runtime.engine_host_code_allowed = facts is not None and facts.version_compatible
        if why := why_invalid(trt, runtime, plan):
            raise NoDeviceError(flavour.name, "", f"{why}; {errors.text}")
        engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise IncompatibleEngineError("plan", f"{flavour.title} cannot load it: {errors.text}")
    return runtime, engine


class Runner:
    """An engine on a GPU."""

    def __init__(
        self,
        trt: Any,
        kind: str,
        engine: Any,
        facts: PlanFacts,
        *,
        home: torch.device,
        place: DeviceContext,
        context: Callable[[], Any] | None = None,
    ) -> None:
        """Inspect the inputs and outputs of a deserialized engine, which has its weights.

        ``facts`` are stored beside its plan. ``home`` is the model's device, to which results are copied, and ``place``
        the one that the plan runs on. ``context`` creates an execution context, by default from the engine.

        Raises:
            IncompatibleEngineError: its inputs or outputs have other names, or dtypes that torch does not have.
        """
        self.engine, self._home, self._place, self._kind = engine, home, place, kind
        self._context = context or engine.create_execution_context
        found = {engine.get_tensor_name(number) for number in range(engine.num_io_tensors)}
        if other := (found - {*facts.arguments, *facts.results}) | ({*facts.results} - found):
            raise IncompatibleEngineError("plan", f"it has other inputs or outputs than were stored: {sorted(other)}")
        dtypes, host = dtypes_of(trt), trt.TensorLocation.HOST
        # TensorRT may have removed an unused input from the network.
        self._inputs = tuple(
            binding_of(engine, name, dtypes, host) if name in found else None for name in facts.arguments
        )
        self._outputs = tuple(binding_of(engine, name, dtypes, host) for name in facts.results)
        self._threads: dict[int, _Thread] = {}
        # A context must outlive its kernels, and calls return before their kernels.
        weakref.finalize(self, _end, self._threads)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Enqueue a call on the caller's stream and return its outputs."""
        with self._place.activate():
            stream = self._place.stream()
            # Each thread has its own context; a call on a new stream waits for the previous one.
            thread = self._threads.get(number := threading.get_ident())
            if thread is None:
                context = self._context()
                if context is None:
                    raise RunError(self._kind, "there is no memory for a context")
                thread = self._threads[number] = _Thread(context, stream)
            if thread.stream != stream:
                stream.wait_stream(thread.stream)
                thread.stream = stream
            placed_inputs: dict[str, torch.Tensor] = {}
            for binding, given in zip(self._inputs, inputs, strict=True):
                if binding is None:
                    continue
                if given.dtype != binding.dtype:
                    raise RunError(self._kind, f"{binding.name} is {binding.dtype}, not {given.dtype}")
                # A dense input where TensorRT can read it, in memory that lives as long as needed.
                is_written = any(output.source == binding.name for output in self._outputs)
                device = "cpu" if binding.on_host else self._place.device
                placed_inputs[binding.name] = tensor = place_tensor(given, device, private=is_written)
                if not binding.on_host:
                    self._place.hold(tensor, stream)
            outputs = self._enqueue(thread.context, placed_inputs, stream)
            thread.kept = [placed_inputs[one.name] for one in self._inputs if one is not None and one.on_host]
            if any(binding.on_host for binding in self._outputs):
                stream.synchronize()
            return [one.to(self._home) for one in outputs]

    def _enqueue(self, context: Any, inputs: Mapping[str, torch.Tensor], stream: Any) -> list[torch.Tensor]:
        for name, tensor in inputs.items():
            self._require(context.set_input_shape(name, tuple(tensor.shape)), name, tuple(tensor.shape))
            self._require(context.set_tensor_address(name, address(tensor)), name, "its memory")
        try:
            missing = context.infer_shapes()
        except RuntimeError as error:
            raise RunError(self._kind, f"sizes do not fit each other: {error}") from error
        if missing:
            raise RunError(self._kind, f"the sizes of these are unknown: {', '.join(missing)}")
        outputs = []
        for binding in self._outputs:
            if binding.source is not None:
                tensor = inputs[binding.source]
            else:
                shape = tuple(context.get_tensor_shape(binding.name))
                if any(size < 0 for size in shape):
                    why = f"the sizes of {binding.name} depend on values, which is not supported"
                    raise RunError(self._kind, why)
                tensor = empty(shape, binding.dtype, "cpu" if binding.on_host else self._place.device)
            self._require(context.set_tensor_address(binding.name, address(tensor)), binding.name, "its memory")
            outputs.append(tensor)
        self._require(context.execute_async_v3(stream.cuda_stream), "the call", "these inputs")
        return outputs

    def _require(self, done: bool, what: str, value: object) -> None:
        if not done:
            raise RunError(self._kind, f"it rejects {value} for {what}; its own message is in the log")


def _end(threads: dict[int, _Thread]) -> None:
    for thread in threads.values():
        thread.stream.synchronize()
    threads.clear()  # before the engine is destroyed
