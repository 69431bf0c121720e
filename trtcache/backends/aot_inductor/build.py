"""Builds of packages: the lowered graph with slots as named buffers, compiled ahead of time without their values."""

from __future__ import annotations

import difflib
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.backends.aot_inductor.assumptions import SizeGuards, record_assumptions
from trtcache.backends.aot_inductor.compilation import (
    IMPORT,
    STEPS,
    PackageCompilation,
    choose_instructions,
    header_options,
    quick_compilation,
)
from trtcache.backends.aot_inductor.loader import ASSUMPTIONS, open_loader, reclaim
from trtcache.backends.aot_inductor.marks import FROZEN_MARK, Packing
from trtcache.backends.aot_inductor.packing import mark, use_packed_weights
from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import Artifact
from trtcache.config import paused_collector
from trtcache.config.backend_settings import PINNED_INDUCTOR_OPTIONS, InductorSettings, Option
from trtcache.errors import BuildError, SettingsError
from trtcache.lowering import TORCH_LOCK, patch_attributes
from trtcache.lowering.model_state import quiet
from trtcache.lowering.rewriting import PHYSICAL, lazy_constants
from trtcache.settings import FROZEN, PACKED, REFITTABLE, Settings
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from trtcache.lowering import LoweredProgram
    from trtcache.target import Target

# Either option alone leaves the build machine's instructions in the code (checked with objdump).
_LEVEL_OPTIONS: dict[str, dict[str, Option]] = {
    "native": {},
    "x86-64": {"cpp.march": "x86-64", "cpp.simdlen": 1},
    "x86-64-v2": {"cpp.march": "x86-64-v2", "cpp.simdlen": 1},
    "x86-64-v3": {"cpp.march": "x86-64-v3", "cpp.simdlen": 256},
    "x86-64-v4": {"cpp.march": "x86-64-v4", "cpp.simdlen": 512},
}

# A package must not reveal who built it: line tables have the path of every header and of Inductor's folder, and the
# sources next to the library begin with the compiler's command line.
_WITHOUT_PATHS: dict[str, Option] = {"aot_inductor.enable_line_tables": False}
# Of a package with its weights in it. The mark is read when it is loaded.
_FROZEN_OPTIONS: dict[str, Any] = {
    "freezing": True,
    "aot_inductor.package_constants_in_so": True,
    "aot_inductor.metadata": {FROZEN_MARK: "1"},
}
_SOURCES = (".cpp", ".cu", ".h")
_METADATA = "_metadata.json"

log = logging.getLogger(__name__)


def build_package(program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
    """Build a package in ``folder``; return it with Inductor's assumptions about sizes.

    Raises:
        SettingsError: Inductor does not have an option of ``settings.inductor``.
        BuildError: Inductor or the C++ compiler failed, or the package lacks a weight; or its weights cannot be frozen;
            or this torch cannot build for a named level.
    """
    if why := _why_not(settings.weights, program, target):
        raise BuildError("aot_inductor", f"settings={{'weights': {settings.weights!r}}}: {why}")
    if missing := _LEVEL_OPTIONS[target.level].keys() - set(known_options()):
        why = f"Inductor of torch {torch.__version__} has no option {', '.join(sorted(missing))}"
        remedy = "build with torch 2.13 or later, or without a target, for this machine's processor"
        raise BuildError("aot_inductor", f"target={target.level!r}: {why}; {remedy}")
    start = time.perf_counter()
    from torch._inductor import compile_fx  # noqa: F401  # takes seconds; only builds need it

    steps = {IMPORT: time.perf_counter() - start}
    check_options(settings.section(InductorSettings).options)
    reclaim()
    try:
        path, assumed, taken = _compile(program, settings.weights, inductor_options(settings, target), folder, steps)
    except BuildError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip()
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            text = f"no C++ compiler was found; install g++ or set CXX. {text}"
        why = text if len(text) <= 2000 else f"{text[:1000]}\n...\n{text[-1000:]}"
        raise BuildError("aot_inductor", why) from error
    # A weight that was compiled in would not follow a refit. Weights without elements are left out.
    needed = (
        [] if settings.weights == FROZEN else [weight for weight in program.interface.weights if 0 not in weight.shape]
    )
    if absent := [slot.names[0] for weight in needed if weight.name not in taken for slot in weight.slots]:
        why = f"the package does not take these weights, so it could not be refitted: {', '.join(absent)}"
        raise BuildError("aot_inductor", why)
    member = assumed.member(program)
    ordered = {name: steps[name] for name in STEPS if name in steps}
    return Artifact(path, {} if member is None else {ASSUMPTIONS: member}, ordered)


def _why_not(weights: str, program: LoweredProgram, target: Target) -> str:
    """Return why a package cannot take the weights in this way, or have them in it; empty if it can."""
    if weights == REFITTABLE:
        return ""
    if program.device.type != "cpu":
        return f"it packs weights for a CPU, and the program runs on {program.device}"
    if weights == PACKED:
        return ""  # they are packed where it is loaded
    if target.level != "native":
        return f"it packs weights for this machine, not for {target.label}"
    changed = [slot.names[0] for slot in program.interface.slots if slot.mutated]
    return f"calls change {', '.join(changed)}" if changed else ""


def _compile(
    program: LoweredProgram, weights: str, options: Mapping[str, Any], folder: Path, steps: dict[str, float]
) -> tuple[Path, SizeGuards, set[str]]:
    """Return a new package, the assumptions about sizes, and the names of the weights that it takes.

    If the compiler or the loader fails, Inductor's own probes are run. If they choose other instructions than those
    that were assumed to be supported, the package is compiled again. ``steps`` gets the seconds of each step.
    """
    with (
        quiet(),
        _same_recursion_limit(),
        without_attention_patterns(),
        own_memory_of_copies(),
        _kept_dependencies(),
        paused_collector(),
    ):
        compilation: PackageCompilation | None = None
        try:
            with quick_compilation(options) as compilation:
                return _compile_once(program, weights, options, folder, compilation)
        except Exception:
            if compilation is None or not (compilation.has_failed and compilation.assumed):
                raise
            with quick_compilation(options, assumes=False) as probing:
                chosen = choose_instructions(options)
                if chosen == compilation.assumed:
                    raise
                log.warning("%s is compiled again: for %s, not for %s", program.name, chosen, compilation.assumed)
                result = _compile_once(program, weights, options, folder, probing)
            compilation.add(probing.steps)
            return result
        finally:
            steps.update({} if compilation is None else compilation.steps)


def _compile_once(
    program: LoweredProgram, weights: str, options: Mapping[str, Any], folder: Path, compilation: PackageCompilation
) -> tuple[Path, SizeGuards, set[str]]:
    from torch._inductor import aot_compile
    from torch._inductor.package.package import package_aoti

    frozen, state = weights == FROZEN, program.state
    values = fit(program.interface.weights, state, known=frozenset(state), device=program.device) if frozen else {}
    module, examples = to_module_with_weights(program, values)
    if frozen:
        # Freezing computes them, and a package stores the bytes of a tensor without its lazy bit: "x @ w.mH" gave
        # the product with the transposed weight (torch 2.13).
        for node in lazy_constants(module.graph.nodes):
            node.target = PHYSICAL[node.target]
        module.recompile()
    packing: Packing = {}
    if weights == PACKED:
        mutated = {weight.name for weight in program.interface.weights if weight.is_mutated}
        packing = use_packed_weights(module, mutated)
    marks = {"aot_inductor.metadata": mark(packing)} if packing else {}
    # Inductor freezes weights only where no gradient is recorded.
    with record_assumptions(program) as assumed, torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
        # Without an input there is nothing to pack a weight for, and Inductor's freezing fails (torch 2.13).
        chosen = {**options, **marks, "freezing": frozen and bool(examples)}
        files: Any = aot_compile(module, examples, options=chosen)
        package = package_aoti(str(folder / "engine.pt2"), {"model": without_sources(files, folder)})
    path = Path(os.fspath(package))  # type: ignore[arg-type]  # a path, since one was passed
    try:
        taken = set(open_loader(str(path), program.device).get_constant_fqns())
        return path, assumed, taken | {name for packed, (_, name, *_) in packing.items() if packed in taken}
    except RuntimeError as error:
        compilation.has_failed = True
        raise BuildError("aot_inductor", f"the new package cannot be loaded: {error}") from error


@contextmanager
def _same_recursion_limit() -> Iterator[None]:
    """Restore Python's recursion limit, which Inductor raises to 2,000 for good (torch/_inductor/compile_fx.py)."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def check_options(options: Mapping[str, Option]) -> None:
    """Check that Inductor has these options.

    Raises:
        SettingsError: an option is unknown; the message has the nearest ones.
    """
    known = known_options()
    for name in options:
        if name not in known:
            near = ", ".join(map(repr, difflib.get_close_matches(name, known, n=3)))
            hint = f"did you mean {near}?" if near else "torch._inductor.config lists them"
            raise SettingsError(f"settings.inductor[{name!r}]", f"Inductor has no such option; {hint}")


def without_sources(files: Any, folder: Path) -> list[Any]:
    """Return a package's files without sources, and with folder names removed from the library.

    An empty file replaces the one source with metadata: torch 2.11 finds the metadata by its name.
    """
    metadata = {str(file) for file in files if str(file).endswith(_METADATA)}
    kept = [without_paths(file, folder) for file in files if not str(file).endswith(_SOURCES)]
    for file in map(Path, map(str, files)):
        if file.suffix in _SOURCES and f"{file.with_suffix('')}{_METADATA}" in metadata:
            empty = folder / file.name
            empty.touch()
            kept.append(str(empty))
    return kept


def without_paths(file: Any, folder: Path) -> Any:
    """Return a library's copy in ``folder`` without this machine's folder names; return other files unchanged.

    The names come from C++'s ``__FILE__``, for messages. They are replaced by names of equal length, and the end of
    each path is kept: GPU kernels are found in the package by it. Inductor has no compiler option for this.
    """
    path = Path(str(file))
    if path.suffix != ".so":
        return file
    content = path.read_bytes()
    homes = {Path(torch.__file__).parents[1], path.parents[1]}
    for home in sorted(homes | {one.resolve() for one in homes}, key=lambda one: -len(str(one))):
        name = os.fsencode(home)
        content = content.replace(name + b"/", b"/" + b"_" * (len(name) - 1) + b"/")
    copy = folder / path.name
    copy.write_bytes(content)
    return str(copy)


def known_options() -> list[str]:
    """Return the names of Inductor's options."""
    from torch._inductor import config

    return list(config._config)  # type: ignore[attr-defined]  # installed by torch.utils._config_module


def inductor_options(settings: Settings, target: Target) -> dict[str, Any]:
    """Return the configuration of a build: the caller's, the target's, and what refit relies on."""
    from torch._inductor import config

    # With one thread Inductor generates code without any parallel loop, regardless of where it runs later.
    threads = {"cpp.threads": max(2, os.cpu_count() or 2)}
    own = {**_WITHOUT_PATHS, **header_options()}
    known = set(known_options())
    chosen = {
        **threads,
        **{name: value for name, value in own.items() if name in known},
        **settings.section(InductorSettings).options,
    }
    more = _FROZEN_OPTIONS
    if settings.weights != FROZEN:
        # Code that Inductor generates for products on a CPU has the weight's values in a layout of its own.
        backends = str(chosen.get("max_autotune_gemm_backends", config.max_autotune_gemm_backends)).upper().split(",")
        more = {"max_autotune_gemm_backends": ",".join(one for one in backends if one.strip() != "CPP") or "ATEN"}
    return {**chosen, **_LEVEL_OPTIONS[target.level], **PINNED_INDUCTOR_OPTIONS, **more}


@contextmanager
def without_attention_patterns() -> Iterator[None]:
    """Exclude Inductor's attention patterns from its joint graph passes in the block, in every thread."""
    from torch._inductor.fx_passes import joint_graph

    patterns: Any = joint_graph.patterns
    original = patterns.apply

    def apply(graph: Any) -> int:
        every = dict(patterns.patterns)
        patterns.patterns.update({key: [one for one in every[key] if not _is_attention(one)] for key in every})
        try:
            count: int = original(graph)
        finally:
            patterns.patterns.update(every)
        return count

    with TORCH_LOCK, patch_attributes(patterns, apply=apply):
        yield


@contextmanager
def own_memory_of_copies() -> Iterator[None]:
    """Keep Inductor from removing copies that are results, in every thread; the caller holds ``TORCH_LOCK``.

    Its ``remove_noop_ops`` replaces a copy by the tensor that was copied, unless that tensor is an input or a result.
    For two copies of parts of a tensor it does so twice, and the results share memory (torch 2.13). So in the block
    what was copied counts as a result, unless it is a weight: results that are weights are copied by each call.
    """
    from torch._inductor.fx_passes import post_grad
    from torch._inductor.fx_utils import get_node_storage

    original = post_grad.remove_noop_ops

    def remove_noop_ops(graph: fx.Graph) -> None:
        output = graph.output_node()
        (returned,) = output.args
        results = returned if isinstance(returned, (list, tuple)) else (returned,)
        storages = {get_node_storage(one) for one in results if isinstance(one, fx.Node)}
        copies = graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
        weights = {get_node_storage(one) for one in graph.find_nodes(op="get_attr")}
        copied = [one.args[0] for one in copies if get_node_storage(one) in storages]
        copied = [one for one in copied if get_node_storage(one) not in weights]
        output.args = ((*results, *copied),)
        original(graph)
        kept: Any = output.args[0]
        output.args = (kept[: len(results)] if isinstance(returned, (list, tuple)) else kept[0],)

    with patch_attributes(post_grad, remove_noop_ops=remove_noop_ops):
        yield


@contextmanager
def _kept_dependencies() -> Iterator[None]:
    """Let Inductor's kernels keep their dependencies in the block when their loops are changed; hold ``TORCH_LOCK``.

    torch 2.11 finds them anew from what a kernel reads and writes, and so loses that it overwrites a buffer: the kernel
    could run before another one that reads the old content (torch/_inductor/scheduler.py).
    """
    from torch._inductor.dependencies import StarDep, WeakDep
    from torch._inductor.scheduler import SchedulerNode
    from torch.utils._ordered_set import OrderedSet

    original: Any = SchedulerNode._compute_attrs

    def compute_attributes(node: Any, *args: Any, **kwargs: Any) -> None:
        before = node.read_writes.reads if hasattr(node, "read_writes") else ()  # a new one has none
        original(node, *args, **kwargs)
        if added := OrderedSet(one for one in before if isinstance(one, (WeakDep, StarDep))):
            node.set_read_writes(node.read_writes.with_read(added).rename(node.mutation_renames))

    with patch_attributes(SchedulerNode, _compute_attrs=compute_attributes):
        yield


def _is_attention(entry: Any) -> bool:
    cells = getattr(entry.extra_check, "__closure__", None) or ()
    home = "torch._inductor.fx_passes.fuse_attention"
    return any(getattr(cell.cell_contents, "__module__", None) == home for cell in cells)
