"""Build of a plan file from a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.profiles import add_profile
from trtcache.backends.tensorrt.progress import Phases, monitor_of
from trtcache.backends.tensorrt.targets import AMPERE_PLUS, WINDOWS, capabilities_of, gpu_here
from trtcache.backends.tensorrt.timing import Timings
from trtcache.errors import BuildCancelledError, BuildError, BuildMemoryError, UnsupportedOperatorError
from trtcache.target import capability_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.log import ErrorCollector
    from trtcache.backends.tensorrt.onnx import OnnxModel
    from trtcache.backends.tensorrt.profiles import Range
    from trtcache.config.tensorrt_settings import TensorRTSettings
    from trtcache.progress import Watcher
    from trtcache.target import Target

_OUT_OF_MEMORY = ("out of memory", "outofmemory", "bad_alloc", "insufficient memory", "cudaerrormemoryallocation")


def write_plan(
    trt: Any,
    flavour: Flavour,
    network: Network,
    path: Path,
    *,
    settings: TensorRTSettings,
    target: Target,
    ranges: Sequence[Range],
    refit: bool,
    watcher: Watcher | None,
    interrupted: Callable[[], bool],
    errors: ErrorCollector,
) -> None:
    """Build a network and stream its plan to a file.

    Args:
        trt: the module of the TensorRT that builds.
        flavour: the flavour of that module.
        network: what to build.
        path: the file.
        settings: the caller's settings.
        target: the target of the plan.
        ranges: inputs with dynamic sizes.
        refit: whether marked weights are refittable.
        watcher: receives progress, and may cancel the build.
        interrupted: returns whether Ctrl-C cancelled the build.
        errors: collects TensorRT's errors.

    Raises:
        BuildCancelledError: the watcher or Ctrl-C cancelled the build.
        BuildMemoryError: there was not enough memory.
        BuildError: the builder failed.
        Exception: whatever the watcher raised.
    """
    config = network.builder.create_builder_config()
    _set_options(trt, config, settings, refit=refit)
    _set_target(trt, config, target, flavour)
    add_profile(config, network, ranges, flavour.name)
    measured = Timings.of(config, flavour, (target.gpu or gpu_here()) if flavour.times_kernels else None)
    phases = Phases(watcher or (lambda _: True), interrupted)
    config.progress_monitor = monitor = monitor_of(trt, phases)
    with path.open("wb") as file:
        writer = _writer_of(trt, file)
        built = network.builder.build_serialized_network_to_stream(network.definition, config, writer)
    del monitor
    if phases.error is not None:
        raise phases.error
    if phases.cancelled:
        raise BuildCancelledError(flavour.name, f"in {phases.cancelled!r}")
    if not built or not path.stat().st_size:
        raise failure(flavour, target, errors)
    measured.keep()


def _writer_of(trt: Any, file: BinaryIO) -> Any:
    class Writer(trt.IStreamWriter):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)

        def write(self, data: bytes) -> int:
            return file.write(data)

    return Writer()


def _set_options(trt: Any, config: Any, settings: TensorRTSettings, *, refit: bool) -> None:
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.max_aux_streams is not None:
        config.max_aux_streams = settings.max_aux_streams
    if settings.avg_timing_iterations is not None:
        config.avg_timing_iterations = settings.avg_timing_iterations
    if settings.tiling is not None:
        config.tiling_optimization_level = getattr(trt.TilingOptimizationLevel, settings.tiling.upper())
    if settings.profiling_verbosity is not None:
        config.profiling_verbosity = getattr(trt.ProfilingVerbosity, settings.profiling_verbosity.upper())
    if settings.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace)
    for flag, wanted in _flags(trt, settings, refit=refit):
        if wanted is not None:
            (config.set_flag if wanted else config.clear_flag)(flag)


def _flags(trt: Any, settings: TensorRTSettings, *, refit: bool) -> list[tuple[Any, bool | None]]:
    """Return each builder flag and whether it is set; None leaves it to TensorRT.

    Only marked weights are refittable: the values of the others are in the key.
    """
    flags = trt.BuilderFlag
    return [
        (flags.REFIT_INDIVIDUAL, refit or None),
        (flags.STRIP_PLAN, settings.strip),
        (flags.VERSION_COMPATIBLE, settings.version_compatible),
        (flags.TF32, settings.tf32),
        (flags.SPARSE_WEIGHTS, settings.sparse_weights),
    ]


def _set_target(trt: Any, config: Any, target: Target, flavour: Flavour) -> None:
    if target.platform == WINDOWS and not flavour.builds_without_gpu:
        config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64
    if target.capability == AMPERE_PLUS:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if flavour.builds_without_gpu:
        capabilities = capabilities_of(target)
        config.num_compute_capabilities = len(capabilities)
        for place, capability in enumerate(capabilities):
            known = getattr(trt.ComputeCapability, capability_words(capability).replace("_", "").upper(), None)
            if known is None:
                raise BuildError(flavour.name, f"this version does not know {capability_words(capability)}")
            config.set_compute_capability(known, place)


def failure(flavour: Flavour, target: Target, errors: ErrorCollector) -> BuildError:
    """Return the error for a failed build, from TensorRT's messages."""
    text = errors.text
    if any(word in text.lower() for word in _OUT_OF_MEMORY):
        return BuildMemoryError(flavour.name, text)
    if "7.5" in capabilities_of(target) and flavour.builds_without_gpu:
        others = ",".join(capability_words(one) for one in capabilities_of(target) if one != "7.5") or "sm_80"
        return BuildError(
            flavour.name,
            "sm_75 (Turing) has no float32 or bfloat16 matrix products in TensorRT-RTX; convert the model to float16 "
            f"(model.half(), or settings autocast='fp16'), or leave it out: target={others!r}. Its message: {text}",
        )
    return BuildError(flavour.name, f"for {target.label}: {text}")


@dataclass(frozen=True, slots=True)
class Network:
    """A parsed network, and everything that must live as long: TensorRT keeps pointers into it."""

    builder: Any
    definition: Any
    parser: Any
    model: OnnxModel


def parse(trt: Any, flavour: Flavour, logger: Any, model: OnnxModel, errors: ErrorCollector) -> Network:
    """Parse an ONNX model into a strongly typed network.

    Raises:
        UnsupportedOperatorError: the parser does not know an operator; the message names the line of the user's model.
        BuildError: the model cannot be read.
    """
    builder = trt.Builder(logger)
    # Strongly typed: precision is part of the graph, and so of the key.
    definition = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(definition, logger)
    if not parser.load_model_proto(model.content):
        raise _failure(flavour, parser, model, errors)
    for name, tensor in model.weights.items():
        if not parser.load_initializer(name, tensor.data_ptr(), tensor.nbytes):
            raise BuildError(flavour.name, f"the parser rejects the weight {name}: {errors.text}")
    if not parser.parse_model_proto():
        raise _failure(flavour, parser, model, errors)
    return Network(builder, definition, parser, model)


def _failure(flavour: Flavour, parser: Any, model: OnnxModel, errors: ErrorCollector) -> BuildError:
    found = [parser.get_error(place) for place in range(parser.num_errors)]
    refused = next((refused for refused in found if refused.node_name()), None)
    if refused is None:
        why = "; ".join(refused.desc() for refused in found) or errors.text
        return BuildError(flavour.name, f"the ONNX parser cannot read the program: {why}")
    node = refused.node_name()
    return UnsupportedOperatorError(
        flavour.name, refused.desc(), node=node, operator=refused.node_operator(), where=model.places.get(node, "")
    )
