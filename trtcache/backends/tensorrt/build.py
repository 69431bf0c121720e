"""Builds a plan of a lowered program: ONNX, network, proof, plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.backends.tensorrt.dtypes import require_border, require_known
from trtcache.backends.tensorrt.interrupts import holding_interrupts
from trtcache.backends.tensorrt.log import logger_of
from trtcache.backends.tensorrt.network import parse
from trtcache.backends.tensorrt.onnx import to_onnx
from trtcache.backends.tensorrt.plan import write_plan
from trtcache.backends.tensorrt.preflight import recorded
from trtcache.backends.tensorrt.profiles import ranges_of
from trtcache.backends.tensorrt.program import input_name
from trtcache.backends.tensorrt.proof import forget, prove, require_complete
from trtcache.progress import watcher
from trtcache.weights.fingerprints import fingerprints
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.onnx import OnnxModel
    from trtcache.backends.tensorrt.profiles import Range
    from trtcache.backends.tensorrt.proof import Proof
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.target import Target


def build_plan(
    flavour: Flavour, program: LoweredProgram, settings: Settings, target: Target, folder: Path, *, refit: bool
) -> tuple[Path, dict[str, Json]]:
    """Return the file of a new plan in ``folder``, and what is to be kept about it.

    Raises:
        ProfileError: a size that varies has no most value.
        UnsupportedOperatorError: TensorRT does not know an operator, or one makes float64 or complex numbers.
        BuildError: torch.onnx, the parser or the builder failed, what they made takes or gives other tensors than the
            program, or a plan that is to take other weights cannot take one whose values are not in its key.
        KeyboardInterrupt: Ctrl-C called it off.
    """
    require_known(program, flavour.name)
    ranges = ranges_of(program, flavour.name)
    weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
    model = to_onnx(program, weights, flavour.name)
    arguments = [input_name(one.leaf) for one in program.interface.inputs]
    return plan_of(flavour, model, program.interface, arguments, ranges, settings, target, folder, refit=refit)


def plan_of(
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
    """Do as ``build_plan`` for what is ONNX already.

    Args:
        flavour: which TensorRT builds.
        model: what it builds.
        interface: the engine weights.
        arguments: names of the inputs in the order of a call.
        ranges: inputs whose sizes vary.
        settings: the caller's.
        target: what the plan is for.
        folder: where the file is to be.
        refit: whether the plan is to take other weights.

    Raises:
        UnsupportedOperatorError: TensorRT does not know an operator.
        BuildError: as of ``build_plan``.
        KeyboardInterrupt: Ctrl-C called it off.
    """
    trt = flavour.load()
    logger, ears = logger_of(trt)
    path = folder / "engine.plan"
    with ears.listening() as errors, holding_interrupts() as interrupted:
        network = parse(trt, flavour, logger, model, errors)
        require_border(trt, network, interface, arguments, flavour.name)
        proof = prove(network, interface, flavour.name)
        if refit:
            require_complete(proof, interface, flavour.name)
        else:
            forget(network, proof)
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
    return path, {**facts, **recorded(flavour, settings.tensorrt, target)}


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
    if refit and not stripped:  # a load then sets only those that are others
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
