"""Build of a plan from a lowered program: ONNX, network, proof, plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.backends.tensorrt.checks import prove, require_complete, require_known, require_matching_ports, unmark
from trtcache.backends.tensorrt.log import get_logger
from trtcache.backends.tensorrt.onnx import input_name, to_onnx
from trtcache.backends.tensorrt.plan import parse, write_plan
from trtcache.backends.tensorrt.preflight import record_facts
from trtcache.backends.tensorrt.profiles import ranges_of
from trtcache.backends.tensorrt.progress import defer_interrupts
from trtcache.progress import watcher
from trtcache.weights.fingerprints import fingerprints
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trtcache.backends.tensorrt.checks import Proof
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.onnx import OnnxModel
    from trtcache.backends.tensorrt.profiles import Range
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.target import Target


def build_plan(
    flavour: Flavour, program: LoweredProgram, settings: Settings, target: Target, folder: Path, *, refit: bool
) -> tuple[Path, dict[str, Json]]:
    """Build a plan in ``folder``; return its file and the facts to store beside it.

    Raises:
        ProfileError: a dynamic size has no upper bound.
        UnsupportedOperatorError: TensorRT does not know an operator, or one computes float64 or complex numbers.
        BuildError: torch.onnx, the parser or the builder failed, the network's inputs or outputs differ from the
            program's, or a refittable plan cannot refit a weight whose values are not in its key.
        KeyboardInterrupt: Ctrl-C cancelled the build.
    """
    require_known(program, flavour.name)
    ranges = ranges_of(program, flavour.name)
    weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
    model = to_onnx(program, weights, flavour.name)
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
) -> tuple[Path, dict[str, Json]]:
    """Build a plan of an ONNX model, as ``build_plan`` does of a program.

    Args:
        flavour: the TensorRT that builds.
        model: the model.
        interface: the engine's inputs, outputs and weights.
        arguments: names of the inputs in the order of a call.
        ranges: inputs with dynamic sizes.
        settings: the caller's settings.
        target: the target of the plan.
        folder: the folder for the file.
        refit: whether the plan is refittable.

    Raises:
        UnsupportedOperatorError: TensorRT does not know an operator.
        BuildError: see ``build_plan``.
        KeyboardInterrupt: Ctrl-C cancelled the build.
    """
    trt = flavour.load()
    logger, router = get_logger(trt)
    path = folder / "engine.plan"
    with router.collect_errors() as errors, defer_interrupts() as interrupted:
        network = parse(trt, flavour, logger, model, errors)
        require_matching_ports(trt, network, interface, arguments, flavour.name)
        proof = prove(network, interface, flavour.name)
        if refit:
            require_complete(proof, interface, flavour.name)
        else:
            unmark(network, proof)
        write_plan(
            trt,
            flavour,
            network,
            path,
            settings=settings.tensorrt,
            target=target,
            ranges=ranges,
            refit=refit,
            watcher=watcher(),
            interrupted=interrupted,
            errors=errors,
        )
    facts = _facts(model, proof, arguments, ranges, refit=refit, stripped=bool(settings.tensorrt.strip))
    return path, {**facts, **record_facts(flavour, settings.tensorrt, target)}


def _facts(
    model: OnnxModel,
    proof: Proof,
    arguments: Sequence[str],
    ranges: Sequence[Range],
    *,
    refit: bool,
    stripped: bool,
) -> dict[str, Json]:
    has: dict[str, Json] = {}
    if refit and not stripped:  # a load then sets only weights that differ
        has = {name: str(fingerprints([model.weights[name]])[0]) for name in proof.refittable}
    return {
        "format": 1,
        "refit": refit,
        "weights": {**proof.document(), "fingerprints": has},
        "profiles": [[one.document() for one in ranges]] if ranges else [],
        "arguments": list(arguments),
        "inputs": list(model.inputs),
        "outputs": list(model.outputs),
    }
