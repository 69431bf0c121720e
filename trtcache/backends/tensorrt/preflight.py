"""Preflight check: whether a stored plan can run here; and the checks of ``trtcache doctor`` and the self-test.

There are two negative results. A sound plan that this machine cannot run, because it is for another GPU or platform or
the driver is too old, is still stored and exported; calling it raises an error with the reason. An unfit plan, of
another version or damaged, cannot be what its key describes: ``IncompatibleEngineError`` is raised, and the entry is
rebuilt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.fitness import Check, Distance, Misfit, SelfTest, check_distribution, driver_cuda, gpu_here
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS, TENSORRT, Flavour
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BackendUnavailableError, IncompatibleEngineError
from trtcache.target import Gpu, capability_words, host_platform

if TYPE_CHECKING:
    from trtcache.backends.fitness import StoredTarget


MEMBER = "plan.json"

UNFIT = ("MALFORMED_ENGINE", "VERSION_MISMATCH")
"""TensorRT-RTX's diagnostics for plans that it cannot run on any machine."""

ELSEWHERE = ("UNSUPPORTED_CC", "OLD_CUDA_DRIVER", "OLD_CUDA_RUNTIME", "INSUFFICIENT_GPU_MEMORY", "CUDA_ERROR")
"""Its diagnostics for plans that another machine may run."""

FORMAT = 1
"""Version of the member."""


@frozen_dataclass
class PlanFacts:
    """The facts stored beside a plan.

    Attributes:
        format: the version of this format.
        arguments: names of the engine's inputs, in the order of a call; TensorRT may have removed unused ones.
        results: names of its outputs, in order.
        refit: whether the plan is refittable, so that the weights in it may be another model's.
        refittable: names of the refittable weights.
        version: the version of TensorRT that built it, empty if unrecorded.
        cuda: the major version of CUDA of that TensorRT.
        target: the target that it was built for.
        version_compatible: whether later versions of the same major version load it.
    """

    format: int
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    refit: bool
    refittable: tuple[str, ...]
    version: str
    cuda: int | None
    target: Mapping[str, Any]
    version_compatible: bool

    @classmethod
    def read(cls, content: bytes) -> PlanFacts:
        """Parse the member ``plan.json`` of a plan's entry.

        Raises:
            IncompatibleEngineError: it cannot be parsed.
        """
        try:
            written = json.loads(content)
            return cls(
                format=int(written["format"]),
                arguments=tuple(written.get("arguments", written["inputs"])),
                results=tuple(written["outputs"]),
                refit=bool(written["refit"]),
                refittable=tuple(written["weights"]["refittable"]),
                version=str(written.get("version", "")),
                cuda=written.get("cuda"),
                target=dict(written.get("target", {})),
                version_compatible=bool(written.get("version_compatible", False)),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise IncompatibleEngineError("plan", f"its facts (plan.json) cannot be read: {error!r}") from error


@frozen_dataclass
class Machine:
    """The properties of a machine that a plan depends on.

    Attributes:
        version: the installed version of TensorRT.
        platform: operating system and processor family.
        gpu: the GPU, or None.
        cuda: the major version of CUDA that the driver supports, None without a driver.
    """

    version: str
    platform: str
    gpu: Gpu | None
    cuda: int | None

    @classmethod
    def here(cls, flavour: Flavour) -> Machine:
        """Return this machine, with the current CUDA device."""
        return cls(flavour.version, host_platform(), gpu_here(), driver_cuda())


def require_loadable_version(facts: PlanFacts, machine: Machine) -> None:
    """Reject a plan whose facts have another format, or that this version of TensorRT cannot load.

    Raises:
        IncompatibleEngineError: the message has both versions.
    """
    if facts.format != FORMAT:
        why = f"its facts (plan.json) have format {facts.format}, and this version of trtcache reads {FORMAT}"
        raise IncompatibleEngineError("plan", why)
    if facts.version in {"", machine.version}:
        return
    here, built = (
        [int(part) for part in text.split(".") if part.isdigit()] for text in (machine.version, facts.version)
    )
    if facts.version_compatible and here[:1] == built[:1] and here >= built:
        return
    raise IncompatibleEngineError(
        "plan", f"it was built by version {facts.version}, and version {machine.version} is installed"
    )


def find_obstacle(facts: PlanFacts, machine: Machine) -> Misfit | None:
    """Return why a sound plan cannot run on this machine, or None if it can."""
    gpu, target = machine.gpu, facts.target
    capability = str(target.get("capability") or "")
    wanted = f"a GPU of {capability_words(capability)}" if capability else "an NVIDIA GPU"
    remedy = f"run it on a machine with {wanted}"
    if gpu is None:
        return Misfit("there is no NVIDIA GPU here", remedy, Distance.GPU)
    if (platform := target.get("platform", machine.platform)) != machine.platform:
        remedy = f"run it on {platform}, or export it again on {machine.platform}"
        return Misfit(f"the plan is for {platform}, and this is {machine.platform}", remedy, Distance.PLATFORM)
    here = f"the GPU here is {gpu.product} ({capability_words(gpu.capability)})"
    remedy += f", or export it for this one: --target {capability_words(gpu.capability)}"
    if capability == AMPERE_PLUS:
        if int(gpu.capability.partition(".")[0]) < 8:
            return Misfit(f"the plan is for {AMPERE_PLUS}, and {here}", remedy, Distance.GPU)
    elif capability and gpu.capability not in capability.split(","):
        return Misfit(f"the plan is for {capability_words(capability)}, and {here}", remedy, Distance.GPU)
    if facts.cuda is not None and machine.cuda is not None and machine.cuda < facts.cuda:
        why = f"the plan needs a driver for CUDA {facts.cuda}, and the one here is for CUDA {machine.cuda}"
        return Misfit(why, "install a later NVIDIA driver", Distance.DRIVER)
    return None


def other_gpu_product(facts: PlanFacts, machine: Machine) -> str | None:
    """Return the GPU product that a plan was built for if it is not this machine's: the plan may run slower."""
    product = facts.target.get("gpu")
    if machine.gpu is None or not product or product == machine.gpu.document():
        return None
    return str(product.get("product"))


def why_invalid(trt: Any, runtime: Any, plan: bytes | memoryview) -> str | None:
    """Return why TensorRT-RTX cannot run a plan here, or None; TensorRT has no such query.

    Raises:
        IncompatibleEngineError: it is damaged, or has another version.
    """
    if not hasattr(trt, "EngineValidity"):
        return None
    found, bits = runtime.get_engine_validity(plan)
    if found != trt.EngineValidity.INVALID:
        return None
    diagnostics = trt.EngineInvalidityDiagnostics
    reasons = [name for name in (*UNFIT, *ELSEWHERE) if int(bits) & int(getattr(diagnostics, name))]
    words = ", ".join(reasons).lower().replace("_", " ") or "it gave no reason"
    if set(reasons) & set(UNFIT):
        raise IncompatibleEngineError("plan", f"TensorRT-RTX finds it invalid: {words}")
    return f"TensorRT-RTX cannot run it: {words}"


def why_misfit(flavour: Flavour, stored: StoredTarget) -> Misfit | None:
    """Return why a plan cannot run here, or None if it can."""
    if not flavour.installed:
        return Misfit(flavour.not_installed_message, f"pip install 'trtcache[{flavour.extra}]'", Distance.PACKAGE)
    machine = Machine.here(flavour)
    assert stored.member is not None  # noqa: S101  # it has engines
    try:
        facts = PlanFacts.read(stored.member(MEMBER))
        require_loadable_version(facts, machine)
    except IncompatibleEngineError as error:
        version = f"{flavour.title} {stored.toolchain.get(flavour.name)}"
        remedy = f"install {version}, or export it again with {machine.version}"
        return Misfit(error.why, remedy, Distance.VERSION)
    return find_obstacle(facts, machine)


_TARGET = "sm_89"
"""The target of a self-test on a machine without a GPU that TensorRT-RTX supports."""

_NEVER = "0.0.0"


def diagnose(flavour: Flavour) -> Iterator[Check]:
    """Yield whether a flavour is installed, and what it can do here."""
    package, title = flavour.name.replace("_", "-"), f"backend {flavour.name}"
    yield check_distribution(flavour.name, (package, f"{package}-cu13", f"{package}-cu12"))
    if flavour.why_unavailable:
        yield Check(title, "missing", "can do nothing", f"pip install 'trtcache[{flavour.extra}]'")
    elif torch.cuda.is_available():
        where = " on an RTX GPU" if flavour.builds_without_gpu else ""
        yield Check(title, "ok", f"can build; running and refit{where} are experimental")
    elif flavour.builds_without_gpu:
        yield Check(title, "ok", "can build for a named compute capability")
    else:
        yield Check(title, "missing", "can do nothing", "it needs an NVIDIA GPU")


@dataclass(frozen=True)
class PlanSelfTest(SelfTest):
    """The self-test of plans. TensorRT may round the factors of float32 products to TF32, with 10 bits."""

    flavour: Flavour = TENSORRT
    tolerance: float = 5e-3

    @classmethod
    def of(cls, flavour: Flavour) -> PlanSelfTest:
        """Return the self-test of a flavour on this machine.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        if why := flavour.why_unavailable:
            raise BackendUnavailableError(flavour.name, why)
        gpu, refit = gpu_here(), {"tensorrt": {"refit": True}}
        if not flavour.builds_without_gpu:
            return cls("cuda", needs="an NVIDIA GPU", refit_settings=refit, flavour=flavour)
        target = None if gpu and gpu.capability in flavour.capabilities else _TARGET
        return cls(target=target, needs="an RTX GPU", refit_settings=refit, flavour=flavour)

    def facts(self) -> Mapping[str, str]:
        """Return its version, that of CUDA, and how long it takes to load."""
        start = time.perf_counter()
        self.flavour.load()
        cuda = f" for CUDA {self.flavour.cuda}" if self.flavour.cuda else ""
        took_s = time.perf_counter() - start
        return {self.flavour.title: f"{self.flavour.version}{cuda}, loaded in {took_s:.1f} s"}

    def members_of_another_version(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what is stored beside a plan, with another version of TensorRT."""
        return {MEMBER: json.dumps({**json.loads(members[MEMBER]), "version": _NEVER}).encode()}
