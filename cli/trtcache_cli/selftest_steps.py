"""Steps of the self-test. Each returns its observation or raises; ``NotRunError`` if it cannot run here."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.backends.fitness import distribution_version, driver_cuda, gpu_here
from trtcache.backends.protocol import ENGINE
from trtcache.cache import Cache
from trtcache.config.environment import installed_version
from trtcache.config.units import format_duration, format_size
from trtcache.digests import CacheKey
from trtcache.errors import BuildForbiddenError, FixedWeightsError, NoDeviceError
from trtcache.store.disk import DiskStore
from trtcache.target import capability_words
from trtcache_cli import probes

if TYPE_CHECKING:
    from trtcache.runtime import CompiledModule
    from trtcache_cli.selftest_subject import Subject

ROWS = (1, 3, 8)
NOTICEABLE = 1e-3
"""Minimum output change of a refit with other weights."""

_NEVER = "0.0.0"


class NotRunError(Exception):
    """A step cannot run on this machine; the text is the reason."""


class FailedError(Exception):
    """A step observed a wrong result."""


def require_device(subject: Subject) -> None:
    """Check that the model's device is available.

    Raises:
        NotRunError: torch sees no GPU.
    """
    if _lacks_gpu(subject):
        raise NotRunError("needs a GPU: the device is cuda, and torch sees none here")


def _lacks_gpu(subject: Subject) -> bool:
    """Return whether the model needs a GPU that is not available."""
    return subject.device == "cuda" and not torch.cuda.is_available()


def environment(subject: Subject) -> tuple[str, dict[str, str]]:
    """Return a summary of the machine, and all facts: versions and devices, without paths, hosts or users."""
    target, backend = "none", registry.load_backend(subject.backend)
    if not _lacks_gpu(subject):
        backend = registry.find(subject.backend, subject.device)
        target = backend.target(subject.target, torch.device(subject.device)).label
    gpu, cuda = gpu_here(), driver_cuda()
    facts = {
        "trtcache": installed_version(),
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "GPU": "none",
        "driver": "none" if cuda is None else f"{probes.driver_version() or 'unknown version'}, for CUDA {cuda}",
        "model on": subject.device,
        "target": target,
    }
    if gpu is not None:
        words = capability_words(gpu.capability)
        facts["GPU"] = f"{gpu.product} ({words}, {gpu.multiprocessors} multiprocessors, {gpu.memory_gib} GiB)"
    facts |= {name: found for name in ("onnx", "onnxscript", "triton") if (found := distribution_version((name,)))}
    toolchain = {name: str(version) for name, version in backend.toolchain(subject.device).items()}
    facts = {**toolchain, **facts, **backend.selftest().facts()}
    library = next(iter(toolchain), "torch")
    return f"{library} {toolchain.get(library, torch.__version__)}; GPU: {facts['GPU']}", facts


def build(subject: Subject) -> str:
    """Build in an empty cache."""
    report = subject.compile().report
    left = "; ".join(f"{node.operator}: {node.why}" for node in report.left)
    _expect(len(report.partitions) == 1, f"the backend has to take the model as one engine; in torch: {left}")
    partition = report.partitions[0]
    _expect(partition.outcome == "built", f"the cache was empty, but the outcome is {partition.outcome}")
    _expect(partition.path is not None, "the engine was built, but not stored")
    size = format_size(Path(str(partition.path)).stat().st_size)
    frozen = f", with the values of {partition.frozen} weights in it" if partition.frozen else ""
    return f"built in {format_duration(partition.build_s)}; the entry has {size}{frozen}"


def hit(subject: Subject) -> str:
    """Compile with builds forbidden."""
    report = subject.compile(forbid_build=True).report
    (partition,) = report.partitions
    _expect(partition.outcome == "hit", f"not a hit but {partition.outcome}")
    found = format_duration(partition.fetch_s + partition.load_s)
    return f"hit: found, verified and loaded in {found}; {format_duration(partition.build_s)} of build time saved"


def run(subject: Subject) -> str:
    """Compare with eager."""
    module = subject.compile(forbid_build=True)
    _require_runs(module, subject)
    return f"off by {', '.join(f'{_off_by(module, subject, 0, rows):.1e}' for rows in ROWS)}"


def refit(subject: Subject) -> str:
    """Refit other weights, and then the first ones again."""
    module = subject.compile()
    _require_runs(module, subject)
    backend = registry.load_backend(subject.backend)
    if module.report.partitions[0].frozen and (settings := backend.selftest().refit_settings):
        subject = replace(subject, settings=settings)
        module = subject.compile()
    if not backend.capabilities.refit:
        return _expect_refusal(module, subject)
    args = subject.args(4)
    first = module(*args)
    module.refit(subject.model(1))
    other, off = module(*args), _off_by(module, subject, 1, 4)
    changed = _difference(first, other)
    _expect(changed > NOTICEABLE, f"the outputs changed by only {changed:.1e}: the refit had no effect")
    module.refit(subject.model(0).state_dict())
    _expect(torch.equal(first, module(*args)), "the outputs with the first weights are not reproduced")
    return f"outputs changed by {changed:.1e}, off by {off:.1e} from the other model's; restored bit for bit"


def _expect_refusal(module: CompiledModule, subject: Subject) -> str:
    """Check that a refit is an error of a backend without it, and changes nothing."""
    first = module(*subject.args(4))
    try:
        module.refit(subject.model(1))
    except FixedWeightsError:
        _expect(torch.equal(first, module(*subject.args(4))), "the outputs changed after a refused refit")
        return "its engines take no other weights: a refit is refused, and changes nothing"
    raise FailedError("its engines take no other weights, and a refit is no error")


def damage(subject: Subject) -> str:
    """Flip a byte."""
    key, store = subject.key(), DiskStore.open(subject.root)
    _flip(store, key.digest)
    before = sum(1 for event in store.events.read() if event.event == "quarantine")
    module = subject.compile()
    (partition,) = module.report.partitions
    _expect(partition.outcome == "built", f"a damaged engine was used: {partition.outcome}")
    _expect(partition.reason.startswith("corrupt"), f"it was built for another reason: {partition.reason}")
    counted = sum(1 for event in store.events.read() if event.event == "quarantine") - before
    _expect(counted == 1, f"{counted} files were quarantined and counted, not 1")
    again = subject.compile(forbid_build=True)
    _expect(again.report.partitions[0].outcome == "hit", "the rebuilt engine was not found")
    answers = "was not run"
    if _runs(again, subject) is None:
        answers = f"is off by {_off_by(again, subject, 0, 3):.1e}"
    return f"detected ({partition.reason}), quarantined, counted, rebuilt, found; the new one {answers}"


def version(subject: Subject) -> str:
    """Store entries of another version."""
    key = subject.key()
    entry = Cache(subject.root).peek(key, counted=False)
    _expect(entry is not None, "the entry is gone")
    assert entry is not None  # noqa: S101  # expected above
    members = {name: bytes(entry.read(name)) for name in entry.members}
    other, where = _of_another_version(key, subject)
    seen = [f"under its own key not found ({_refusal(subject, 'other', other, members)})"]
    _refusal(subject, "forged", other, members, moved_to=key.digest)
    reasons = {
        one.reason for one in DiskStore.open(_beside(subject, "forged")).events.read() if one.event == "quarantine"
    }
    _expect(bool(reasons), "a file of another key under this one was not quarantined")
    seen.append(f"under this one quarantined ({', '.join(sorted(reasons))})")
    if changed := registry.load_backend(subject.backend).selftest().members_of_another_version(members):
        _refusal(subject, "record", key, {**members, **changed})
        seen.append(f"with another version in {', '.join(changed)} refused")
    return f"{where} {_NEVER}: " + "; ".join(seen)


def _of_another_version(key: CacheKey, subject: Subject) -> tuple[CacheKey, str]:
    document: Any = json.loads(json.dumps(key.document))
    name = next(iter(registry.load_backend(subject.backend).toolchain(subject.device)), "builder")
    document["parts"]["toolchain"][name] = _NEVER
    return CacheKey.of_document(document), name


def _refusal(
    subject: Subject, name: str, key: CacheKey, members: Mapping[str, bytes], *, moved_to: str | None = None
) -> str:
    """Store an entry in a separate store, look it up where it does not belong, and return why there was no hit."""
    store = DiskStore.open(_beside(subject, name))
    store.put(key, members, kind=key.kind, name="selftest")
    if moved_to:
        store.path(moved_to).parent.mkdir(parents=True, exist_ok=True)
        store.path(key.digest).rename(store.path(moved_to))
    try:
        subject.compile(root=store.root, forbid_build=True)
    except BuildForbiddenError as error:
        return error.why
    raise FailedError(f"an entry of another version was used ({name})")


def _beside(subject: Subject, name: str) -> Path:
    return subject.root.with_name(f"{subject.root.name}-{name}")


def _flip(store: DiskStore, digest: str) -> None:
    (member,) = (one for one in store.header(digest).members if one.name == ENGINE)
    place = member.offset + member.stored_bytes // 2
    with store.path(digest).open("r+b") as file:
        file.seek(place)
        (before,) = file.read(1)
        file.seek(place)
        file.write(bytes([before ^ 1]))
        os.fsync(file.fileno())


def _runs(module: CompiledModule, subject: Subject) -> str | None:
    """Return why an engine cannot run here, None if it can."""
    try:
        module(*subject.args(1))
    except NoDeviceError as error:
        return error.why
    return None


def _require_runs(module: CompiledModule, subject: Subject) -> None:
    if why := _runs(module, subject):
        raise NotRunError(f"needs {registry.load_backend(subject.backend).selftest().needs}: {why.rpartition(': ')[2]}")


def _off_by(module: CompiledModule, subject: Subject, seed: int, rows: int) -> float:
    """Return the maximum difference between an engine's output and eager's."""
    args, tolerance = subject.args(rows), registry.load_backend(subject.backend).selftest().tolerance
    with torch.no_grad():
        off = _difference(subject.model(seed)(*args), module(*args))
    _expect(off < tolerance, f"for {rows} rows the output is off by {off:.1e}, and {tolerance:.0e} is allowed")
    return off


def _difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    if expected.shape != actual.shape:
        raise FailedError(f"the output has shape {tuple(actual.shape)}, and eager's has {tuple(expected.shape)}")
    return float((expected.double() - actual.double()).abs().max())


def _expect(found: bool, otherwise: str) -> None:
    if not found:  # NaN compares as false
        raise FailedError(otherwise)


RUN: Mapping[str, Callable[[Subject], Any]] = {
    "environment": environment,
    "build": build,
    "hit": hit,
    "run": run,
    "refit": refit,
    "damage": damage,
    "version": version,
}
"""Name -> step; ``environment`` also returns facts."""
