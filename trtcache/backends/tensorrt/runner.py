"""Runs a plan on its GPU: static and profiled shapes, a context for each thread, the caller's stream, torch's memory.

Experimental: written against the bindings of TensorRT-RTX 1.4 to 1.7 and TensorRT 10.15 and 11.4, and not yet run on a
GPU. Sizes that depend on values, and CUDA graphs, are no part of it.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.border import binding_of, dtypes_of
from trtcache.backends.tensorrt.log import logger_of
from trtcache.backends.tensorrt.place import address, empty, placed
from trtcache.backends.tensorrt.preflight import validity
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.border import Binding
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.place import Place
    from trtcache.backends.tensorrt.preflight import Facts


@dataclass(slots=True)
class _Thread:
    """What one thread runs on: its context, the stream of its last call, and host memory that TensorRT may yet read."""

    context: Any
    stream: Any = None
    kept: list[torch.Tensor] = field(default_factory=list)


def deserialized(trt: Any, flavour: Flavour, plan: bytes | memoryview) -> tuple[Any, Any]:
    """Return a runtime and the engine of a plan. Code for the host, which a plan can have in it, is not allowed.

    Raises:
        IncompatibleEngineError: TensorRT cannot load the plan.
        NoDeviceError: TensorRT-RTX says that this machine cannot run it.
    """
    logger, ears = logger_of(trt)
    with ears.listening() as errors:
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
        facts: Facts,
        *,
        home: torch.device,
        place: Place,
        context: Callable[[], Any] | None = None,
    ) -> None:
        """Look at the engine's inputs and outputs.

        Args:
            trt: the module.
            kind: which TensorRT that is, for messages.
            engine: a deserialised engine, with the weights that it is to have.
            facts: what is stored beside its plan.
            home: where the model is; results go there.
            place: where the plan runs.
            context: makes a context of the engine; by default the engine itself does.

        Raises:
            IncompatibleEngineError: it has inputs or outputs of other names, or of dtypes that torch has not.
        """
        self.engine, self._home, self._place, self._kind = engine, home, place, kind
        self._context = context or engine.create_execution_context
        found = {engine.get_tensor_name(number) for number in range(engine.num_io_tensors)}
        if other := (found - {*facts.arguments, *facts.results}) | ({*facts.results} - found):
            raise IncompatibleEngineError("plan", f"it has other inputs or outputs than were stored: {sorted(other)}")
        dtypes, host = dtypes_of(trt), trt.TensorLocation.HOST
        # An input that nothing reads may have been left out of the network.
        self._inputs = tuple(
            binding_of(engine, name, dtypes, host) if name in found else None for name in facts.arguments
        )
        self._outputs = tuple(binding_of(engine, name, dtypes, host) for name in facts.results)
        self._threads: dict[int, _Thread] = {}
        # A context must not end while its kernels run, and calls return before they have.
        weakref.finalize(self, _end, self._threads)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Enqueue a call on the caller's stream and return its outputs.

        Raises:
            RunError: TensorRT refuses the call.
        """
        with self._place.entered():
            stream = self._place.stream()
            thread = self._thread(stream)
            laid = {
                binding.name: self._placed(binding, given, stream)
                for binding, given in zip(self._inputs, inputs, strict=True)
                if binding is not None
            }
            outputs = self._enqueue(thread.context, laid, stream)
            thread.kept = [laid[one.name] for one in self._inputs if one is not None and one.on_host]
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
            raise RunError(self._kind, f"it does not know the sizes of {', '.join(missing)}")
        outputs = [self._output(context, binding, inputs) for binding in self._outputs]
        for one, tensor in zip(self._outputs, outputs, strict=True):
            self._require(context.set_tensor_address(one.name, address(tensor)), one.name, "its memory")
        self._require(context.execute_async_v3(stream.cuda_stream), "the call", "these inputs")
        return outputs

    def _thread(self, stream: Any) -> _Thread:
        """Return this thread's context; calls on another stream than its last wait for that one."""
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

    def _placed(self, binding: Binding, given: torch.Tensor, stream: Any) -> torch.Tensor:
        """Return an input where TensorRT reads it, dense, in memory that stays as long as it may be read."""
        if given.dtype != binding.dtype:
            raise RunError(self._kind, f"{binding.name} is {binding.dtype}, not {given.dtype}")
        written = any(one.source == binding.name for one in self._outputs)
        tensor = placed(given, "cpu" if binding.on_host else self._place.device, private=written)
        if not binding.on_host:
            self._place.hold(tensor, stream)
        return tensor

    def _output(self, context: Any, binding: Binding, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if binding.source is not None:
            return inputs[binding.source]
        shape = tuple(context.get_tensor_shape(binding.name))
        if any(size < 0 for size in shape):
            raise RunError(self._kind, f"the sizes of {binding.name} depend on values, which this runner does not do")
        return empty(shape, binding.dtype, "cpu" if binding.on_host else self._place.device)

    def _require(self, done: bool, what: str, value: object) -> None:
        if not done:
            raise RunError(self._kind, f"it refuses {value} for {what}; its own words are in the log")


def _end(threads: dict[int, _Thread]) -> None:
    for thread in threads.values():
        thread.stream.synchronize()
    threads.clear()  # before the engine goes
