"""Modules and exported programs in memory, as sources."""

from __future__ import annotations

import inspect
import time
import types
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn.modules import module as hooks
from torch.utils import _pytree as pytree

from trtcache.config import paused_collector
from trtcache.errors import ExportError, SettingsError
from trtcache.frontends.direct import UNKNOWN_TORCH
from trtcache.frontends.source import CompileOptions, Source, Specs
from trtcache.lowering import TORCH_LOCK, export_lock
from trtcache.lowering.arguments import automatic_sizes, children, reasons_for_fixed_sizes
from trtcache.lowering.operators import called_operators, refuse_replaced_kernels

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.cache import Cache
    from trtcache.digests import Digest
    from trtcache.frontends.direct.manifest import Manifest
    from trtcache.frontends.direct.mode import DirectMode
    from trtcache.runtime import Report


class ExportedSource(Source):
    """A program that ``torch.export`` made in this process, with its weights."""

    fingerprint_name: ClassVar[str] = "exported"

    def __init__(
        self,
        program: ExportedProgram,
        name: str,
        *,
        forward: inspect.Signature | None = None,
        export_s: float = 0.0,
        device_type: str | None = None,
    ) -> None:
        """Create a source; no weight is read.

        Args:
            program: the program.
            name: its name in reports.
            forward: the signature of what a call of the exported model runs.
            export_s: seconds that exporting took.
            device_type: the device type to choose a backend for; by default ``cuda`` if a tensor is on a GPU.
        """
        self.model = self._program = program
        self.name, self.forward, self.export_s = name, forward, export_s
        self.specs: Specs = (program.call_spec.in_spec, program.call_spec.out_spec)
        self._device_type = device_type

    @cached_property
    def digest(self) -> Digest:
        """The digest of the program without the values of its weights.

        Raises:
            ValueError: it has no stable digest; the message says why.
        """
        from trtcache.keys.program_digest import exported_digest
        from trtcache.lowering.arguments import assume_sizes_of_two

        assume_sizes_of_two(self._program)  # as decompositions do: another compile of it must find the same digest
        return exported_digest(self._program)

    @cached_property
    def device(self) -> torch.device:
        """The CUDA device of its tensors, or the CPU.

        Raises:
            ValueError: they are on several devices.
        """
        from trtcache.keys.program_digest import devices

        found = devices(self._program)
        if len(found) > 1:
            raise ValueError(f"its tensors are on {', '.join(sorted(map(str, found)))}")
        return next(iter(found), torch.device("cpu"))

    @property
    def device_type(self) -> str:
        """``cuda`` if a tensor of the program, or an example input of the model that was exported, is on a GPU."""
        return self._device_type or device_type_of_program(self._program)

    @cached_property
    def _state(self) -> Mapping[str, object]:
        return {**self._program.constants, **self._program.state_dict}

    def fingerprint(self) -> Mapping[str, object]:
        """Return the digest of the program.

        Raises:
            ValueError: it has no stable digest, or calls an operator of torch whose kernel was replaced in this
                process; the message says why.
        """
        refuse_replaced_kernels(called_operators(self._program))
        return {self.fingerprint_name: self.digest}

    def weights(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights by the program's names for them.

        Raises:
            ValueError: it has no weight of one of the names.
        """
        weights = {name: tensor for name in names if isinstance(tensor := self._state.get(name), torch.Tensor)}
        if missing := sorted(set(names) - set(weights)):
            raise ValueError(f"it has no weight {', '.join(missing)}")
        return weights

    def require_weights(self) -> None:
        """Check that its weights have values.

        Raises:
            ExportError: one is fake.
        """
        from trtcache.lowering.capture import reject_fake_weights

        reject_fake_weights(self._program, self.name)

    def program(self) -> ExportedProgram:
        """Return the program."""
        return self._program


def signature_of(program: ExportedProgram) -> inspect.Signature | None:
    """Return the arguments that a program was exported with, by the model's names; None if it does not have them.

    Arguments that were passed by name have no position.
    """
    call = program.module_call_graph[0].signature
    names = list(call.forward_arg_names or ()) if call is not None else []
    positional, named = children(program.call_spec.in_spec)
    count = len(children(positional))
    if len(names) < count or sorted(names[count:]) != sorted(named.context):
        return None
    by_position, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    try:
        return inspect.Signature(
            [inspect.Parameter(name, by_position if at < count else by_name) for at, name in enumerate(names)]
        )
    except ValueError:  # two have one name, as with *args, or one is not a name of Python
        return None


def signature_of_call(model: torch.nn.Module) -> inspect.Signature:
    """Return the signature of what runs when a model is called.

    A plain function cannot tell how a call passes its arguments: Python binds them to its parameters, and those that
    are left out to its defaults. What stands between the call and ``forward`` can: a ``__call__`` of the class, or a
    hook. Then the signature is ``(*args, **kwargs)``. A wrapper has its own one, not that of ``__wrapped__``; but those
    of torch's decorators, such as ``torch.no_grad``, and the ``__call__`` of a ``GraphModule`` pass on what they get.
    """
    with TORCH_LOCK:  # another thread that exports the model has hooks in it
        of_model, of_all = model._forward_hooks or model._forward_pre_hooks, hooks._global_forward_hooks
        function: Any = getattr(model.forward, "__func__", model.forward)
        while getattr(function, "__code__", None) is _DECORATED:
            function = function.__wrapped__
        kind: Any = type(model)
        is_graph = issubclass(kind, torch.fx.GraphModule) and getattr(kind, "_wrapped_call", None) is not None
        is_graph = is_graph and kind._wrapped_call.cls_call is None
        is_plain = (
            not (of_model or of_all or hooks._global_forward_pre_hooks)
            and (is_graph or kind.__call__ is torch.nn.Module._wrapped_call_impl)
            and kind._call_impl is torch.nn.Module._call_impl
            and vars(model).keys().isdisjoint(_CALLED)
            and model._compiled_call_impl is None
            and inspect.isfunction(function)
            and vars(function).keys().isdisjoint(_OTHER_SIGNATURES)
        )
        if is_plain:
            bound = function if inspect.isfunction(model.forward) else types.MethodType(function, model)
            return inspect.signature(bound, follow_wrapped=False)
    kinds = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
    return inspect.Signature([inspect.Parameter(name, kind) for name, kind in kinds.items()])


_DECORATED = torch.no_grad()(lambda: None).__code__
"""The code of functions that torch's context managers decorate."""
_CALLED = frozenset({"_wrapped_call_impl", "_call_impl"})
_OTHER_SIGNATURES = frozenset({"__signature__", "__partialmethod__", "_partialmethod"})
"""Attributes of a function that ``inspect`` reads its signature from in place of its code."""


class ModuleSource(Source):
    """A ``torch.nn.Module`` with example inputs. It is exported unless direct mode recognizes it.

    Its ``fingerprint_name`` is that of ``ExportedSource``: both find one alias.

    Attributes:
        direct_mode: direct mode of this call; None if it is off, or the source is not compiled.
        direct_off: why it is off, where it is not tried.
    """

    fingerprint_name: ClassVar[str] = "exported"

    def __init__(
        self,
        model: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        dynamic_shapes: Any,
        *,
        name: str | None = None,
        direct: str | None = None,
        cache: Cache | None = None,
    ) -> None:
        """Create a source; nothing is run.

        Args:
            model: the module.
            args: example positional arguments.
            kwargs: example keyword arguments.
            dynamic_shapes: sizes that vary, as ``torch.export.export`` takes them.
            name: its name in reports; by default its class's.
            direct: the mode of direct mode (``docs/direct-mode.md``); None: it is neither tried nor reported.
            cache: the cache of direct mode's manifests.

        Raises:
            ExportError: ``model`` is not a module, or a ``GraphModule`` whose call is not its graph.
            SettingsError: ``kwargs`` is not a dict.
        """
        if not isinstance(model, torch.nn.Module):
            raise ExportError(type(model).__name__, "give a torch.nn.Module or a torch.export.ExportedProgram")
        if isinstance(model, torch.fx.GraphModule):
            _require_run_as_graph(model)
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise SettingsError("kwargs", f"expected a dict of example inputs by name, got {type(kwargs).__name__}")
        self.model: torch.nn.Module = model
        self.name = name or type(model).__name__
        self._examples = tuple(args or ()), dict(kwargs or {}), dynamic_shapes
        self.direct_mode: DirectMode | None = None
        self.direct_off = "off: direct=off" if direct == "off" else ""
        if direct not in {None, "off"} and torch.__version__ >= UNKNOWN_TORCH:
            self.direct_off = f"off: torch {torch.__version__} is newer than the versions that direct mode supports"
        elif direct not in {None, "off"} and cache is not None:
            with paused_collector():
                from trtcache.frontends.direct.mode import DirectMode

            self.direct_mode = DirectMode(model, self._examples, cache, mode=str(direct), name=self.name)
        self._find_s = 0.0
        self._reasons: Mapping[str, str] = {}

    @property
    def device(self) -> torch.device:
        """The device of the program that direct mode found.

        Raises:
            ValueError: its manifest names a device that torch does not know.
        """
        return self._manifest.torch_device()

    @property
    def device_type(self) -> str:
        """``cuda`` if a weight or an example input is on a GPU; the device of the lowered program is final."""
        with TORCH_LOCK:  # another thread that exports or replays the model has fake weights in it
            state = list(self.model.state_dict(keep_vars=True).values())
        return device_type_of([*state, *pytree.tree_leaves(self._examples[:2])])

    @property
    def _manifest(self) -> Manifest:
        if self.direct_mode is None or self.direct_mode.manifest is None:
            raise ValueError("direct mode has no valid manifest")
        return self.direct_mode.manifest

    def fingerprint(self) -> Mapping[str, object] | None:
        """Find a manifest of direct mode, and return the digest of its program; None if there is none.

        The direct key has the dtypes and layouts of arguments and weights, and torch's settings. Its entry has a few
        manifests, each with a trace: a list of operations. The model is run on fake tensors (``replay`` in
        ``frontends/direct/replay.py``). The manifest fits that has exactly its operations, and the digests of all
        functions that ran (``ExecutedCode``). Sets ``specs`` and ``forward``.

        Raises:
            ValueError: the manifest cannot be used here.
        """
        if self.direct_mode is None:
            return None
        start = time.perf_counter()
        is_known = self.direct_mode.find()
        self._find_s = time.perf_counter() - start
        if not is_known or self.direct_mode.is_verifying:
            return None
        assert self.direct_mode.specs is not None  # noqa: S101  # a manifest was found
        self.specs, self.forward = self.direct_mode.specs, signature_of_call(self.model)
        return {self.fingerprint_name: self._manifest.digest}

    def weights(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights of the module by the program's names for them.

        Raises:
            ValueError: the module has no weight of one of the names.
        """
        assert self.direct_mode is not None  # noqa: S101  # a manifest was found
        state = self.direct_mode.state
        if missing := sorted(name for name in names if name not in state):
            raise ValueError(f"it has no weight {', '.join(missing)}")
        return {name: state[name] for name in names}

    def export(self, options: CompileOptions) -> ExportedSource:
        """Export the module.

        Raises:
            ExportError: the module cannot be exported.
        """
        self.find_backend(options)
        start = time.perf_counter()
        program = self.direct_mode.export(self.program) if self.direct_mode is not None else self.program()
        export_s = time.perf_counter() - start
        self._reasons = reasons_for_fixed_sizes(program)
        return ExportedSource(
            program,
            self.name,
            forward=signature_of_call(self.model),
            export_s=export_s,
            device_type=self.device_type,
        )

    def store_manifest(self, program: Source, *, has_alias: bool) -> None:
        """Store a manifest of direct mode for the next process, if the program has a key alias."""
        if self.direct_mode is not None and isinstance(program, ExportedSource):
            self.direct_mode.store_manifest(
                program.program(), lambda: program.digest, program.export_s, has_alias=has_alias
            )

    def automatic_sizes(self, in_spec: pytree.TreeSpec) -> Mapping[tuple[int, int | None], str]:
        """Return the sizes that ``Dim.AUTO`` left to torch, with the reason for fixing one if it was exported."""
        args, kwargs, dynamic_shapes = self._examples
        try:
            sizes = automatic_sizes(self.model, args, kwargs, dynamic_shapes, in_spec)
        except Exception:  # noqa: BLE001  # it flattens objects of the caller's classes, and is for messages only
            return {}
        return {place: self._reasons.get(name, "") for place, name in sizes.items()}

    def report_direct(self, report: Report, *, is_hit: bool) -> None:
        """Report the outcome of direct mode; its time, reported as ``direct_s``, is no longer part of ``alias_s``."""
        if self.direct_mode is None:
            report.direct = self.direct_off
            return
        if is_hit:
            self.direct_mode.outcome = "hit"
            report.route, report.direct_s = "direct", self.direct_mode.direct_s
            report.alias_saved_s += self._manifest.took_s
            report.alias_s -= self._find_s
        report.direct = self.direct_mode.outcome

    def program(self) -> ExportedProgram:
        """Export the module.

        Raises:
            ExportError: it cannot be exported.
        """
        from trtcache.lowering import capture

        args, kwargs, dynamic_shapes = self._examples
        with export_lock(), paused_collector():
            return capture.export(self.model, args, kwargs, dynamic_shapes)


def _require_run_as_graph(model: torch.fx.GraphModule) -> None:
    """Check that calling a ``GraphModule`` runs its graph and nothing else: torch.export runs the graph, without hooks.

    Raises:
        ExportError: it has a forward hook that is not torch's, or its code is not that of its graph.
    """
    label = type(model).__name__
    tables = (model._forward_hooks, model._forward_pre_hooks, hooks._global_forward_hooks)
    found = [hook for table in (*tables, hooks._global_forward_pre_hooks) for hook in table.values()]
    if any(not str(getattr(hook, "__module__", "")).startswith("torch.") for hook in found):
        raise ExportError(label, "torch.export ignores forward hooks of a GraphModule: compile a module that calls it")
    if "forward" in vars(model) or model.graph.python_code("self").src != model.code:
        raise ExportError(label, "its graph and its forward differ: call recompile() after a change of the graph")


def device_type_of(values: Iterable[object]) -> str:
    """Return ``cuda`` if one of the tensors among some values is on a GPU, else ``cpu``."""
    return "cuda" if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values) else "cpu"


def device_type_of_program(program: ExportedProgram) -> str:
    """Return ``cuda`` if a tensor of a program is on a GPU, also if the program has no weights; else ``cpu``."""
    from trtcache.keys.program_digest import devices

    return "cuda" if any(device.type == "cuda" for device in devices(program)) else "cpu"
