"""Execution of a plan on its GPU.

It supports static and profiled shapes, with a context per thread, the caller's stream and torch's memory. Experimental:
written against the bindings of TensorRT-RTX 1.4 to 1.7 and TensorRT 10.15 and 11.4, and not yet run on a GPU.
Data-dependent sizes and CUDA graphs are not supported.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.bindings import address, binding_of, dtypes_of, empty, place_tensor
from trtcache.backends.tensorrt.log import get_logger
from trtcache.backends.tensorrt.preflight import validity
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.bindings import Binding, DeviceContext
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.preflight import PlanFacts


@dataclass(slots=True)
class _Thread:
    """The state of one thread: its context, its last stream, and host memory that TensorRT may still read."""

    context: Any
    stream: Any = None
    kept: list[torch.Tensor] = field(default_factory=list)


def deserialize(trt: Any, flavour: Flavour, plan: bytes | memoryview) -> tuple[Any, Any]:
    """Return a runtime and the engine of a plan. Host code, which a plan can contain, is not allowed.

    Raises:
        IncompatibleEngineError: TensorRT cannot load the plan.
        NoDeviceError: TensorRT-RTX reports that this machine cannot run it.
    """
    logger, router = get_logger(trt)
    with router.collect_errors() as errors:
        runtime = trt.Runtime(logger)
        runtime.engine_host_code_allowed = False
        if why := validity(trt, runtime, plan):
            raise NoDeviceError(flavour.name, "a plan", f"{why}; {errors.text}")
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
        """Inspect the engine's inputs and outputs.

        Args:
            trt: the module.
            kind: the backend's name, for messages.
            engine: a deserialized engine, with its weights.
            facts: the facts stored beside its plan.
            home: the model's device, to which results are copied.
            place: the device that the plan runs on.
            context: creates an execution context; by default from the engine.

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
        """Enqueue a call on the caller's stream and return its outputs.

        Raises:
            RunError: TensorRT rejects the call.
        """
        with self._place.activate():
            stream = self._place.stream()
            thread = self._thread(stream)
            placed_inputs = {
                binding.name: self._place_input(binding, given, stream)
                for binding, given in zip(self._inputs, inputs, strict=True)
                if binding is not None
            }
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
        outputs = [self._output(context, binding, inputs) for binding in self._outputs]
        for one, tensor in zip(self._outputs, outputs, strict=True):
            self._require(context.set_tensor_address(one.name, address(tensor)), one.name, "its memory")
        self._require(context.execute_async_v3(stream.cuda_stream), "the call", "these inputs")
        return outputs

    def _thread(self, stream: Any) -> _Thread:
        """Return this thread's context; a call on a new stream waits for the previous one."""
        number = threading.get_ident()
        thread = self._threads.get(number)
        if thread is None:
            context = self._context()
            if context is None:
                raise RunError(self._kind, "there is no memory for a context")
            thread = self._threads[number] = _Thread(context, stream)
        if thread.stream != stream:
            stream.wait_stream(thread.stream)
            thread.stream = stream
        return thread

    def _place_input(self, binding: Binding, given: torch.Tensor, stream: Any) -> torch.Tensor:
        """Return a dense input where TensorRT can read it, in memory that lives as long as needed."""
        if given.dtype != binding.dtype:
            raise RunError(self._kind, f"{binding.name} is {binding.dtype}, not {given.dtype}")
        written = any(one.source == binding.name for one in self._outputs)
        tensor = place_tensor(given, "cpu" if binding.on_host else self._place.device, private=written)
        if not binding.on_host:
            self._place.hold(tensor, stream)
        return tensor

    def _output(self, context: Any, binding: Binding, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if binding.source is not None:
            return inputs[binding.source]
        shape = tuple(context.get_tensor_shape(binding.name))
        if any(size < 0 for size in shape):
            raise RunError(self._kind, f"the sizes of {binding.name} depend on values, which is not supported")
        return empty(shape, binding.dtype, "cpu" if binding.on_host else self._place.device)

    def _require(self, done: bool, what: str, value: object) -> None:
        if not done:
            raise RunError(self._kind, f"it rejects {value} for {what}; its own message is in the log")


def _end(threads: dict[int, _Thread]) -> None:
    for thread in threads.values():
        thread.stream.synchronize()
    threads.clear()  # before the engine is destroyed
