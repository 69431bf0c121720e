"""Build of a plan from a lowered program: ONNX, network, refittable weights, optimization profile, plan file.

A name alone proves nothing if the parser has merged weights, so the network is queried. Weights that it does not
accept as refittable are frozen: the plan contains their values, and other values need another plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.fitness import gpu_here
from trtcache.backends.onnx_export import source_line, to_onnx
from trtcache.backends.onnx_operators import OnnxModel, Range
from trtcache.backends.program_forms import input_name
from trtcache.backends.protocol import Artifact
from trtcache.backends.tensorrt.callbacks import defer_exceptions_of_handlers, get_logger, monitor_of, writer_of
from trtcache.backends.tensorrt.engine import REFITTABLE
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS, WINDOWS, Flavour, capabilities_of
from trtcache.backends.tensorrt.preflight import FORMAT, MEMBER
from trtcache.backends.tensorrt.runner import dtypes_of
from trtcache.backends.tensorrt.tuning import TimingCache
from trtcache.config.backend_settings import TensorRTSettings
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import explain_full_disk
from trtcache.errors import (
    BuildCancelledError,
    BuildError,
    BuildMemoryError,
    FrozenWeightsError,
    ProfileError,
    UnsupportedOperatorError,
)
from trtcache.progress import watcher
from trtcache.target import Target, capability_words
from trtcache.weights.slots import dtype_name, fit

if TYPE_CHECKING:
    from torch import fx

    from trtcache.backends.tensorrt.callbacks import ErrorCollector
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface, TensorInput, TensorOutput
    from trtcache.settings import Settings


_UNKNOWN = frozenset({torch.float64, torch.complex32, torch.complex64, torch.complex128})
_REMEDY = "convert the model and its inputs to float32 (model.float()), or use the aot_inductor backend"


@frozen_dataclass
class RefitSupport:
    """The weights that a network can refit, and those that it cannot.

    Attributes:
        refittable: names of the engine weights that it can refit.
        frozen: the other weights, with the reason.
    """

    refittable: tuple[str, ...]
    frozen: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Json]:
        """Return the names as they are stored beside the plan."""
        return {"refittable": list(self.refittable), "frozen": dict(self.frozen)}


def mark_refittable(network: Network, interface: Interface, kind: str) -> RefitSupport:
    """Query the network for each engine weight, and mark the refittable ones.

    Raises:
        BuildError: a slot is in no engine weight, so its values would not reach the plan.
    """
    weights = interface.weights
    reached = {slot.index for weight in weights for slot in weight.slots}
    if lost := [slot.names[0] for slot in interface.slots if slot.index not in reached]:
        raise BuildError(kind, f"these weights do not reach the network: {', '.join(lost)}")
    refittable, frozen = [], {}
    for weight in weights:
        if weight.dtype in REFITTABLE and network.definition.mark_weights_refittable(weight.name):
            refittable.append(weight.name)
        else:
            names = ", ".join(slot.names[0] for slot in weight.slots if slot.names)
            why = "the network has no refittable weight of this name"
            if weight.dtype not in REFITTABLE:
                which = f"of {', '.join(sorted(REFITTABLE))}" if "float" in weight.dtype else "of floating point"
                why = f"TensorRT refits weights {which} only, and this is {weight.dtype}"
            frozen[weight.name] = f"{names}: {why}"
    return RefitSupport(tuple(refittable), frozen)


def require_refittable(support: RefitSupport, interface: Interface, kind: str) -> None:
    """Reject a refittable plan with a frozen weight whose values are not in its key.

    The key has the values of slots of other dtypes, so weights of those alone may be frozen.

    Raises:
        FrozenWeightsError: the message names the weights, each with its reason, and what to do.
    """
    taken = [one.name for one in interface.weights if any(slot.dtype in REFITTABLE for slot in one.slots)]
    if reasons := [support.frozen[name] for name in taken if name in support.frozen]:
        raise FrozenWeightsError(kind, "; ".join(reasons))


def unmark_refittable(network: Network, support: RefitSupport) -> None:
    """Remove the marks, for a plan that is built for one set of weights."""
    for name in support.refittable:
        network.definition.unmark_weights_refittable(name)


def require_known(program: LoweredProgram, kind: str) -> None:
    """Reject a program with a float64 or complex tensor.

    Raises:
        UnsupportedOperatorError: an operator computes one; the message names the line of the user's model.
        BuildError: an input, a weight or a constant is one.
    """
    used = set(program.order)
    for node in program.graph_module.graph.nodes:
        if node in used or "input" in node.meta:
            values = node.meta.get("val")
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if isinstance(value, torch.Tensor) and value.dtype in _UNKNOWN:
                    raise _refusal(node, dtype_name(value.dtype), kind)


def _refusal(node: fx.Node, dtype: str, kind: str) -> BuildError:
    if node.op == "call_function":
        where = source_line(node.stack_trace or "")
        return UnsupportedOperatorError(
            kind, f"it computes {dtype}, which TensorRT does not support", node.name, str(node.target), where
        )
    if "input" in node.meta:
        what = f"input {node.meta['input']} of the program"
    elif "engine_weight" in node.meta:
        what = f"the weight {node.meta['engine_weight'].label}"
    else:
        what = f"the constant {node.target}"
    return BuildError(kind, f"{what} is {dtype}, which TensorRT does not support; {_REMEDY}")


def require_matching_ports(
    trt: Any, network: Network, interface: Interface, arguments: Sequence[str], kind: str
) -> None:
    """Check that a parsed network has the program's inputs and outputs.

    ``arguments`` are the names of the inputs in the order of a call.
    """
    definition, dtypes = network.definition, dtypes_of(trt)
    taken = {port.name: port for port in map(definition.get_input, range(definition.num_inputs))}
    given = {port.name: port for port in map(definition.get_output, range(definition.num_outputs))}
    _compare("input", taken, dict(zip(arguments, interface.inputs, strict=True)), dtypes, kind)
    # Outputs are unknown if an ONNX file leaves their sizes open.
    _compare("output", given, dict(zip(network.model.outputs, interface.outputs, strict=False)), dtypes, kind)


def _compare(
    side: str,
    ports: Mapping[str, Any],
    wanted: Mapping[str, TensorInput] | Mapping[str, TensorOutput],
    dtypes: Mapping[Any, torch.dtype],
    kind: str,
) -> None:
    for name, spec in wanted.items():
        if name not in ports:
            continue
        port, why = ports[name], ""
        try:
            shape = tuple(port.shape)
        except ValueError:  # its rank is unknown
            shape = None
        dtype = dtypes.get(port.dtype)
        if dtype is None or dtype_name(dtype) != spec.dtype:
            why = f"{port.dtype}, which is {spec.dtype} in the program"
        elif shape is not None:
            pairs = zip(shape, spec.shape, strict=False)
            if len(shape) != len(spec.shape) or any(type(two) is int and one not in (-1, two) for one, two in pairs):
                why = f"of shape {shape}, which is {tuple(spec.shape)} in the program"
        if why:
            remedy = "use the aot_inductor backend, or correct the ONNX file"
            raise BuildError(kind, f"the parser made {side} {name} {why}; {remedy}")


_OUT_OF_MEMORY = ("out of memory", "outofmemory", "bad_alloc", "insufficient memory", "cudaerrormemoryallocation")


def build_plan(
    flavour: Flavour, program: LoweredProgram, settings: Settings, target: Target, folder: Path, *, refit: bool
) -> Artifact:
    """Build a plan in ``folder``, with the facts about it as a member."""
    require_known(program, flavour.name)
    ranges = ranges_of(program, flavour.name)
    weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
    model = to_onnx(program, flavour.name, weights=weights)
    arguments = [input_name(one.leaf) for one in program.interface.inputs]
    return build_onnx_plan(flavour, model, program.interface, arguments, ranges, settings, target, folder, refit=refit)


def build_onnx_plan(
    flavour: Flavour,
    model: OnnxModel,
    interface: Interface,
    arguments: Sequence[str],
    ranges: Sequence[Range],
    settings: Settings,
    target: Target,
    folder: Path,
    *,
    refit: bool,
) -> Artifact:
    """Build a plan of an ONNX model, as ``build_plan`` does of a program.

    ``interface`` has the engine's inputs, outputs and weights, ``arguments`` are the names of the inputs in the order
    of a call, and ``ranges`` the inputs with dynamic sizes.

    Raises:
        ProfileError: a dynamic size has no upper bound.
        UnsupportedOperatorError: TensorRT does not know an operator.
        BuildError: the parser or the builder failed, the network's inputs or outputs differ from the program's, or a
            refittable plan cannot refit a weight whose values are not in its key.
        BuildCancelledError: the watcher cancelled the build.
        BuildMemoryError: there was not enough memory.
        OSError: the plan cannot be written.
        BaseException: whatever the watcher or a signal handler raised, as on Ctrl-C.
    """
    trt, own = flavour.load(), settings.section(TensorRTSettings)
    logger, router = get_logger(trt)
    path = folder / "engine.plan"

    with router.collect_errors() as errors, defer_exceptions_of_handlers(errors):
        network = parse(trt, flavour, logger, model, errors)
        require_matching_ports(trt, network, interface, arguments, flavour.name)
        support = mark_refittable(network, interface, flavour.name)
        if refit:
            require_refittable(support, interface, flavour.name)
        else:
            unmark_refittable(network, support)
        config = network.builder.create_builder_config()
        _set_options(trt, config, own, refit=refit)
        _set_target(trt, config, target, flavour)
        add_profile(config, network, ranges, flavour.name)
        measured = TimingCache.of(config, flavour, (target.gpu or gpu_here()) if flavour.times_kernels else None)
        config.progress_monitor = monitor = monitor_of(trt, watcher() or (lambda _: True), errors)
        built = _write_plan(trt, flavour, network, config, path)
        if errors.error is not None:
            raise errors.error
        if monitor.cancelled:
            raise BuildCancelledError(flavour.name, f"in {monitor.cancelled!r}")
        if not built:
            raise failure(flavour, target, errors)
        measured.keep()
    facts: dict[str, Any] = {
        "format": FORMAT,
        "refit": refit,
        "weights": support.document(),
        "profiles": [[range_.document() for range_ in ranges]] if ranges else [],
        "arguments": list(arguments),
        "inputs": list(model.inputs),
        "outputs": list(model.outputs),
        "version": flavour.version,
        "target": target.document(),
        "cuda": flavour.cuda,
        "version_compatible": bool(own.version_compatible),
    }
    return Artifact(path, {MEMBER: json.dumps(facts, sort_keys=True).encode()})


def _write_plan(trt: Any, flavour: Flavour, network: Network, config: Any, path: Path) -> bool:
    """Build a plan into a file, and return whether TensorRT has built one.

    Raises:
        BaseException: what a write raised; an error of a full disk says what to do.
        BuildError: the file has another size than was written.
    """
    with explain_full_disk(path, f"free space in {path.parent}, or set TMPDIR to a directory on another disk"):
        with path.open("wb") as file:
            writer = writer_of(trt, file)
            built = network.builder.build_serialized_network_to_stream(network.definition, config, writer)
        if writer.error is not None:
            raise writer.error
    size_bytes = path.stat().st_size
    if size_bytes != writer.size_bytes:
        raise BuildError(flavour.name, f"{path} has {size_bytes} bytes, and {writer.size_bytes} were written")
    return bool(built) and size_bytes > 0


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
    # Only marked weights are refittable: the values of the others are in the key.
    flags = trt.BuilderFlag
    for flag, wanted in (
        (flags.REFIT_INDIVIDUAL, refit or None),
        (flags.STRIP_PLAN, settings.strip),
        (flags.VERSION_COMPATIBLE, settings.version_compatible),
        (flags.TF32, settings.tf32),
        (flags.SPARSE_WEIGHTS, settings.sparse_weights),
    ):
        if wanted is not None:
            (config.set_flag if wanted else config.clear_flag)(flag)


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
            f"(model.half(), or settings autocast='fp16'), or leave it out: target={others!r}. "
            f"TensorRT-RTX reports: {text}",
        )
    return BuildError(flavour.name, f"for {target.label}: {text}")


@frozen_dataclass
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


def ranges_of(program: LoweredProgram, kind: str) -> tuple[Range, ...]:
    """Return the range of each dynamic input; the example's sizes are the optimum."""
    found = []
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        if "input" not in node.meta:
            continue
        name, shape = input_name(node.meta["input"]), node.meta["val"].shape
        if any(type(size) is not int for size in shape):
            bounds = [_bounds(size, program, kind, name) for size in shape]
            minimum, optimal, maximum = (tuple(range_) for range_ in zip(*bounds, strict=True))
            found.append(Range(name, minimum, optimal, maximum))
    return tuple(found)


def _bounds(size: Any, program: LoweredProgram, kind: str, name: str) -> tuple[int, int, int]:
    """Return min, opt and max of a size; those of an expression follow from its symbols' bounds."""
    if type(size) is int:
        return size, size, size
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    expression = size.node.expr
    limits = {symbol: program.constraints.get(symbol, ValueRanges.unknown_int()) for symbol in expression.free_symbols}
    bounds = bound_sympy(expression, limits)
    if not all(one.upper.is_Integer for one in (bounds, *limits.values())):
        raise ProfileError(kind, f"a size of input {name} ({expression}) has no upper bound")
    minimum = max(0, int(bounds.lower)) if bounds.lower.is_Integer else 0
    maximum = max(minimum, int(bounds.upper))
    optimal = int(size.node.hint) if size.node.hint is not None else maximum
    return minimum, min(max(optimal, minimum), maximum), maximum


def add_profile(config: Any, network: Network, ranges: Iterable[Range], kind: str) -> None:
    """Add one profile with these ranges to the builder; none without dynamic sizes.

    Raises:
        ProfileError: a size depends on the values of an input.
        BuildError: the builder rejects the profile.
    """
    for number in range(network.definition.num_inputs):
        port = network.definition.get_input(number)
        if port.is_shape_tensor:
            why = f"sizes depend on the values of input {port.name!r}, whose range is unknown"
            raise ProfileError(kind, why, "make it a constant of the model")
    ranges = tuple(ranges)
    if not ranges:
        return
    profile = network.builder.create_optimization_profile()
    for range_ in ranges:
        profile.set_shape(range_.name, range_.minimum, range_.optimal, range_.maximum)
    if config.add_optimization_profile(profile) < 0:
        shown = ", ".join(f"{range_.name} from {range_.minimum} to {range_.maximum}" for range_ in ranges)
        raise BuildError(kind, f"the builder rejects a profile with {shown}")
