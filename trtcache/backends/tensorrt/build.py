"""Build of a plan from a lowered program: ONNX, network, proof, optimization profile, plan file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trtcache.backends.gpu import gpu_here
from trtcache.backends.onnx_export import to_onnx
from trtcache.backends.onnx_model import Range
from trtcache.backends.program_forms import input_name
from trtcache.backends.protocol import Artifact
from trtcache.backends.tensorrt.callbacks import defer_exceptions_of_handlers, get_logger, monitor_of, writer_of
from trtcache.backends.tensorrt.checks import prove, require_complete, require_known, require_matching_ports, unmark
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS, WINDOWS, capabilities_of
from trtcache.backends.tensorrt.preflight import MEMBER, record_facts
from trtcache.backends.tensorrt.tuning import TimingCache
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import explain_full_disk
from trtcache.config.tensorrt_settings import TensorRTSettings
from trtcache.errors import BuildCancelledError, BuildError, BuildMemoryError, ProfileError, UnsupportedOperatorError
from trtcache.progress import watcher
from trtcache.target import capability_words
from trtcache.weights.fingerprints import fingerprints
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trtcache.backends.onnx_model import OnnxModel
    from trtcache.backends.tensorrt.callbacks import ErrorCollector
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.target import Target

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
        proof = prove(network, interface, flavour.name)
        if refit:
            require_complete(proof, interface, flavour.name)
        else:
            unmark(network, proof)
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
    has: dict[str, Json] = {}
    if refit and not own.strip:  # no load uses them yet: it sets all weights
        has = {name: str(fingerprints([model.weights[name]])[0]) for name in proof.refittable}
    facts: dict[str, Json] = {
        "refit": refit,
        "weights": {**proof.document(), "fingerprints": has},
        "profiles": [[range_.document() for range_ in ranges]] if ranges else [],
        "arguments": list(arguments),
        "inputs": list(model.inputs),
        "outputs": list(model.outputs),
        **record_facts(flavour, own, target),
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
    """Return min, opt and max of a size; an expression is evaluated at its symbols' bounds."""
    if type(size) is int:
        return size, size, size
    expression = size.node.expr
    minimum, maximum = {}, {}
    for symbol in expression.free_symbols:
        limits = program.constraints.get(symbol)
        if limits is None or not limits.upper.is_Integer:
            raise ProfileError(kind, f"a size of input {name} ({expression}) has no upper bound")
        minimum[symbol], maximum[symbol] = limits.lower, limits.upper
    ends = sorted((int(expression.subs(minimum)), int(expression.subs(maximum))))
    optimal = int(size.node.hint) if size.node.hint is not None else ends[1]
    return ends[0], optimal, ends[1]


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
