"""The compiled module: an engine with the model's call signature."""

from __future__ import annotations

import copy
import pickle
import time
import warnings
from collections import OrderedDict
from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

import torch
from torch.nn.modules import module as nn_module

from trtcache.config import threads as thread_counts
from trtcache.config.threads import Threads, fork_safe_lock
from trtcache.errors import InputError, RefitError, VerifyError
from trtcache.lowering.interface import FixedSize
from trtcache.runtime.checks import describe_guards
from trtcache.runtime.module_call import ModuleCall
from trtcache.runtime.module_state import ModelNames, changed_by, part_of, prefix_of, publish, tensors_by_name
from trtcache.runtime.refit import EngineSwap, make_new_weights, refit, replace_engine
from trtcache.runtime.report import RefitReport
from trtcache.runtime.verify import Examples, compare, eager, tolerance_of
from trtcache.runtime.weight_source import HeldTensors, WeightSource
from trtcache.weights.slots import EngineWeights, check, copy_shared, equals, fit, storage_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractContextManager

    from torch.utils import _pytree as pytree
    from typing_extensions import TypeVar

    from trtcache.backends.protocol import Engine
    from trtcache.lowering.interface import Interface
    from trtcache.runtime.executable import Executable, Provenance
    from trtcache.runtime.module_call import CallSignature
    from trtcache.runtime.on_guard import OnGuard
    from trtcache.runtime.refit import RefitResult
    from trtcache.runtime.report import Report
    from trtcache.runtime.runners import Runners
    from trtcache.runtime.weight_source import Weights
    from trtcache.weights.slots import SlotWeights

    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")

_REGISTRIES = ("_parameters", "_buffers", "_modules")
"""The dicts of a ``torch.nn.Module``; ``_modules`` is set last, so that with it the others are there."""


class WeightFile(Protocol):
    """Reads weights of ONNX files."""

    def accepts(self, weights: object) -> bool:
        """Return whether weights are the path of such a file."""
        ...

    def read(self, path: Any) -> Mapping[str, torch.Tensor]:
        """Return the weights of another file of the same graph, by the names of the file that was compiled."""
        ...

    def current(self) -> Mapping[str, torch.Tensor]:
        """Return the weights of the file that was compiled, by the engine's names for them."""
        ...


@torch.inference_mode(False)
def _copy_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies; those of a part of a larger memory have only that part, and others share theirs as before."""
    parts = {name: one for name, one in tensors.items() if one.nbytes < one.untyped_storage().nbytes()}
    whole = copy.deepcopy({name: one.detach() for name, one in tensors.items() if name not in parts})
    return {name: parts[name].detach().clone() if name in parts else whole[name] for name in tensors}


class CompiledModule(torch.nn.Module, Generic[Output]):
    """A model compiled for inference: called like the model, returns outputs of its structure, without gradients.

    It is a ``torch.nn.Module``, always in eval mode, and may take the place of the model in another module. Its
    parameters, buffers and state_dict have the model's names and are for reading; ``load_state_dict`` refits, and
    ``to`` with another dtype or device is an error, also through a module around it (``docs/refit.md``).

    Weights share memory with the model's where their layout allows, so an in-place update of the model applies here
    too. Weights that had to be copied (another layout, or modified by calls), and those computed from several, as a
    convolution's with a folded BatchNorm, are updated only by ``refit``.

    Attributes:
        report: what ``compile`` did.
        examples: the inputs given to ``compile``, if they were kept; ``refit(..., verify=True)`` uses them.
        origin: the stored engines, for ``export``; None without any.
        weight_file: reads weights of files like the one that was compiled, for ONNX; None if any file of weights can be
            read. The module's own weights are in the plan, and are read from the file for the first refit.
    """

    _nested: Mapping[str, CompiledModule] = MappingProxyType({})
    """The compiled modules that the program calls, by their paths in the model. Each has its own engine and weights."""

    def __init__(
        self, executable: Executable, engine: Engine, weights: Mapping[str, torch.Tensor], call: CallSignature
    ) -> None:
        """Wrap an engine in a call signature.

        Args:
            executable: the engine's interface, constants and names.
            engine: a live engine with weights.
            weights: those weights by the engine's names.
            call: how arguments and outputs are flattened.
        """
        super().__init__()
        self.training = False
        self.report: Report
        self.origin: Provenance | None = None
        self.weight_file: WeightFile | None = None
        self._executable = executable
        self._interface = executable.interface
        self._device = executable.device
        self._known = executable.known
        self._constants = executable.constant_contents
        if executable.live:  # the known names are complete only after ``name_weights``
            self._known = frozenset((*self._constants, *(name for one in self._interface.slots for name in one.names)))
        self._signature = call
        is_mutated = any(slot.mutated for slot in self._interface.slots)
        self._swap = EngineSwap(engine, weights, is_mutated=is_mutated)
        self._module_call = ModuleCall(executable, call, self._swap)
        self._refitting = fork_safe_lock()
        self.examples = Examples()
        self._names: ModelNames | None = None
        self._held: HeldTensors | None = None
        self._state = tensors_by_name(self._interface, self._weights)
        self._drop_registries()

    @property
    def ready(self) -> bool:
        """Whether the engine answers the calls; always True unless it is built in the background."""
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a build in the background has ended; return ``ready``."""
        del timeout
        return True

    def add_done_callback(self, callback: Callable[[CompiledModule], object]) -> None:
        """Call ``callback(module)`` when a build in the background has ended; at once if there is none."""
        callback(self)

    @property
    def _weights(self) -> EngineWeights:
        """The engine's weights, also after a refit of a copy with the same engine."""
        return self._swap.weights

    @property
    def interface(self) -> Interface:
        """The engine's inputs, results and weights."""
        return self._interface

    @property
    def threads(self) -> Threads:
        """The value of ``settings.threads``."""
        return self._module_call.threads

    @threads.setter
    def threads(self, threads: Threads) -> None:
        self._module_call.threads = threads

    @property
    def on_guard(self) -> OnGuard | None:
        """What answers calls with sizes that the program was not exported for; None if they raise."""
        return self._module_call.on_guard

    @on_guard.setter
    def on_guard(self, on_guard: OnGuard | None) -> None:
        self._module_call.on_guard = on_guard

    @property
    def in_spec(self) -> pytree.TreeSpec:
        """The pytree spec of the call's arguments."""
        return self._signature.in_spec

    def note_fixed_sizes(self, automatic: Mapping[tuple[int, int | None], str]) -> None:
        """Report the sizes that were marked dynamic and that torch fixed, and name the reason in errors.

        Args:
            automatic: (leaf of the arguments, dimension or None for an int) -> why torch fixed it, or an empty string.
        """
        sizes: dict[tuple[int, int | None], object] = {(one.leaf, None): one.value for one in self._interface.values}
        for one in self._interface.inputs:
            places = [None] if one.number else range(len(one.shape))  # an int is the first size of its tensor
            sizes |= {(one.leaf, place): size for place, size in zip(places, one.shape, strict=False)}
        for (leaf, dimension), why in automatic.items():
            size = sizes.get((leaf, dimension))
            if type(size) is int:
                reason = f"since the example's is {size}" if size < 2 and not why else why
                self._module_call.check.fixed_sizes[leaf, dimension] = FixedSize(
                    self._signature.label(leaf), dimension, size, reason
                )
        self.report.fixed_sizes = tuple(self._module_call.check.fixed_sizes.values())

    @property
    def guards(self) -> tuple[str, ...]:
        """The program's guards, which are conditions on the sizes of its arguments."""
        return describe_guards(self._interface, self._signature.label)

    def stored_form(self) -> tuple[Executable, CallSignature]:
        """Return what ``export`` writes beside the engines and the weights."""
        return self._executable, self._signature

    def current_weights(self) -> EngineWeights:
        """Return the weights, which no later refit overwrites.

        Raises:
            RefitStoppedError: they are a mix, since a refit failed part way.
        """
        with self._refitting:
            self._require_whole()
            self.lend()
            return self._weights

    def lend(self) -> None:
        """Note that weights are handed out: the next refit does not overwrite them."""
        with self._refitting:
            if "_swap" in self.__dict__:  # else the engine is still being built
                self._weights.lent = self._weights.own
        for part in self._nested.values():
            part.lend()

    def _require_whole(self) -> None:
        """Refuse to pass on the mix of weights that a refit leaves which failed part way."""
        self._swap.require_whole()

    def __call__(self, *args: Any, **kwargs: Any) -> Output:
        """Call ``forward`` and the hooks, as every ``torch.nn.Module`` does."""
        state = self.__dict__  # its attributes are slow: without hooks, torch's way takes 1.5 us longer
        if (
            torch.compiler.is_compiling()
            or state["_forward_hooks"]
            or state["_forward_pre_hooks"]
            or state["_backward_hooks"]
            or state["_backward_pre_hooks"]
            or nn_module._global_forward_hooks
            or nn_module._global_forward_pre_hooks
            or nn_module._global_backward_hooks
            or nn_module._global_backward_pre_hooks
            or "forward" in state
        ):
            output: Output = super().__call__(*args, **kwargs)
            return output
        answer: Output = state["_module_call"](args, kwargs)
        return answer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would return.

        Values of tensors are not checked: an index out of range, for which eager mode raises ``IndexError``, ends the
        process, as on a GPU.

        Raises:
            GuardError: the program was exported for other sizes, and ``on_guard`` is ``error``; nothing ran.
            InputError: an argument does not match what the module was compiled for; nothing ran.
        """
        return self._module_call(args, kwargs)

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call with these arguments would run, without running it."""
        try:
            inputs = self._module_call.check_call(self._signature.flatten(args, kwargs))
            check_sizes = getattr(self._swap.engine, "check_sizes", None)  # a package was compiled for some sizes only
            if check_sizes is not None:
                check_sizes(inputs)
        except InputError:
            return False
        return True

    def refit(
        self,
        weights: Weights,
        *,
        verify: bool | float = False,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RefitReport:
        """Replace the engine's weights without a build. Each call sees only the old weights or only the new.

        Numbers and flags of a module (a dropout rate, a scale kept as a float) are part of the program, not weights: a
        module that differs in them must be compiled, which finds its own entry or builds one.

        Args:
            weights: a module of the same architecture, its state_dict, or the path of a file of weights, which is
                mapped and not copied; for a plan of an ONNX file the path of another one of the same graph. Names
                of weights that the program does not use are allowed; all that it uses are required.
            verify: compare with eager torch first: True, or the maximum error relative to an output's largest value.
                Eager runs the given module, or else the compiled one if it still exists.
            args: inputs for that; by default those given to ``compile``, if they were small enough to keep.
            kwargs: keyword inputs for that.

        Returns:
            What changed.

        Raises:
            RefitError: a weight is missing, unknown, or of another shape, dtype or device; or a module's constants
                differ from those in the program; all are named, and the old weights are still in place.
            VerifyError: the outputs differ too much from eager's, or there is nothing to compare; likewise.
            WeightsFileError: the file cannot be read.
            SettingsError: ``verify`` is not a valid tolerance.
            NoDeviceError: the engine is a plan, and there is no GPU.
        """
        start = time.perf_counter()
        tolerance = tolerance_of(verify)
        if self.weight_file is not None and self.weight_file.accepts(weights):
            weights = self.weight_file.read(weights)
        source = self._weight_source(weights)
        needed = self._interface.weights
        self._check_nested(source)
        with self._refitting:
            if self.weight_file is not None:  # its weights are read for the first refit
                self._swap.weights = self._weights or EngineWeights(self.weight_file.current())
            sources = check(
                needed,
                source.state,
                known=self._known,
                device=self._device,
                keep=True,
                is_part=source.is_part,
                anywhere=source.is_file,
                unused=self._state,
            )
            off_by = None
            with self._refit_guard_branches(sources, source):
                if verify is False:
                    refitted = refit(self._swap, needed, sources, device=self._device)
                else:
                    inputs = self._inputs(args, kwargs)
                    refitted, off_by = self._refit_verified(sources, source, inputs, tolerance)
            self._state = self._state_with(refitted.weights, source.state)
            self._drop_registries()
        if refitted.interrupt is not None:
            raise refitted.interrupt
        return RefitReport(
            weights=len(needed),
            changed=tuple(weight.label for weight in refitted.changed),
            shared=len(needed) - len(refitted.weights.own),
            in_place=refitted.in_place,
            off_by=off_by,
            refit_s=time.perf_counter() - start,
        )

    def _weight_source(self, weights: Weights) -> WeightSource:
        """Return weights by the model's names."""
        return WeightSource.of(weights, known=self._known, constants=self._constants, held=self._held)

    def check_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Check that a refit would take weights, if the engine is still being built; nothing is changed.

        Raises:
            RefitError: it would not.
        """

    def _check_nested(self, source: WeightSource) -> None:
        """Check that weights are equal to those of the compiled modules that the program calls.

        Those have their own engines, which the model and other modules call as well.
        """
        modules = {} if source.module is None else dict(source.module.named_modules(remove_duplicate=False))
        for path, part in self._nested.items():
            differing = part.find_differing_weights(modules.get(path, part_of(source.state, path)))
            if differing:
                why = "was compiled by itself: refit that first, or compile the whole model"
                names = ", ".join(f"{prefix_of(path)}{name}" for name in differing)
                raise RefitError(mismatched=(f"{names} (other values for {path or 'the model'}, which {why})",))

    def find_differing_weights(self, weights: Weights) -> list[str]:
        """Return the names of weights that are not equal to the current ones; names that it does not have are ignored.

        Raises:
            RefitError: a constant of the program has another value.
        """
        source = self._weight_source(weights)
        self._check_nested(source)
        with self._refitting:
            self._require_whole()
            current = self._state
            return [name for name in source.state if name in current and not equals(source.state[name], current[name])]

    def _refit_guard_branches(self, sources: SlotWeights, source: WeightSource) -> AbstractContextManager[None]:
        """Refit what answers the calls that the guards reject, if the engine's refit in the block succeeds."""
        if self.on_guard is None:
            return nullcontext()
        placed = sources.by_name(self._interface.slots) if source.is_file else {}
        return self.on_guard.refit({**source.state, **placed})

    def _inputs(
        self, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        if args is not None or kwargs is not None:
            return args or (), kwargs or {}
        if self.examples.args is None:
            raise VerifyError(why="there are no example inputs at hand; give some: refit(..., verify=True, args=(...))")
        return self.examples.args, self.examples.kwargs or {}

    def _refit_verified(
        self,
        sources: SlotWeights,
        source: WeightSource,
        inputs: tuple[tuple[Any, ...], Mapping[str, Any]],
        tolerance: float | None,
    ) -> tuple[RefitResult, float]:
        """Replace the weights after checking that the engine then agrees with eager torch."""
        needed = self._interface.weights
        changing = [(one, slot) for one in needed if (slot := one.slot) is not None and slot.mutated]
        refitted = make_new_weights(self._weights, needed, sources, device=self._device)
        candidate = copy.copy(self)
        candidate._swap = self._swap.another(self._swap.engine.refit(refitted.weights), refitted.weights)
        candidate._module_call = self._module_call.another(candidate._swap)
        state = {name: refitted.weights[one.name].clone() for one, slot in changing for name in slot.names}
        module = source.module
        if module is None:
            module = self.examples.module
            state = sources.by_name(self._interface.slots) | state
        dtypes = {one.dtype for one in refitted.weights.values()}
        reference = eager(module, state, self.examples.modes, self.examples.autocast)
        off_by = compare(reference, candidate.forward, *inputs, tolerance=tolerance, dtypes=dtypes, device=self._device)
        engine = candidate._swap.engine
        if changing:  # the call modified them
            refitted = make_new_weights(self._weights, needed, sources, device=self._device)
            engine = engine.refit(refitted.weights)
        replace_engine(self._swap, engine, refitted.weights, sources.kept, device=self._device)
        return refitted, off_by

    def runners(self, count: int | None = None, *, intra: int | None = None) -> Runners:
        """Return threads that call this module in parallel, on one engine with its weights in memory once.

        Args:
            count: the number of threads; by default that of ``trtcache.threads`` or the settings, or else as many as
                the cores allow. If given, those settings apply to the partitions of each call.
            intra: intra-op threads of each call; by default the effective number here, or a share of the cores if none
                was chosen.

        Returns:
            An object with ``submit`` and ``map``; its ``report`` says whether calls run in parallel, or why not.

        Raises:
            SettingsError: a number is less than 1.
            RefitStoppedError: a refit failed part way.
        """
        from trtcache.runtime.runners import Runners, parallel_engine, parts_at_once, report_on  # few modules have any

        Threads(intra, count)  # raises for a number that is less than 1
        found = thread_counts.effective_threads(self.threads)
        parts = 1 if count is None else parts_at_once(self._swap.engine, found)
        count = count or (max(1, found.cores // intra) if intra and found.inter_from == "cores" else found.inter)
        changing = any(weight.is_mutated for weight in self._interface.weights)
        with self._refitting:
            self._require_whole()
            engine, why_not = parallel_engine(self._swap.engine, count, changes_weights=changing)
            if engine is not self._swap.engine:
                self._swap.swap_in(engine)
        return Runners(self, report_on(count, intra, found, why_not, inter=parts))

    def with_weights(self, state: Mapping[str, torch.Tensor]) -> CompiledModule[Output]:
        """Return another module of the same engine with these weights; this one keeps its own.

        Raises:
            RefitError: see ``refit``.
        """
        source = self._weight_source(state)
        self._check_nested(source)
        with self._refitting:
            self._require_whole()
            engine, current, needed = self._swap.engine, self._weights, self._interface.weights
            fitted = fit(
                needed, source.state, known=self._known, device=self._device, current=current, unused=self._state
            )
            copy_shared(fitted, [current[name] for name in current.own])
        return self._with_engine(engine, fitted, self._state_with(fitted, source.state))

    def __copy__(self) -> CompiledModule[Output]:
        """Return another module of the same engine object, with hooks of its own."""
        other = type(self).__new__(type(self))
        state = dict(vars(self))  # at once: another thread's refit may drop entries meanwhile
        other.__dict__.update(
            {name: copy.copy(value) if type(value) is OrderedDict else value for name, value in state.items()}
        )
        other._drop_registries()
        return other

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule[Output]:
        """Return another module of the same engine; its weights are a copy unless they are in the engine.

        Raises:
            RefitError: the engine contains weights that calls modify, or a refit failed part way.
            TypeError: its program calls another compiled module, whose engine the copy would share.
        """
        if self._executable.live:
            which = ", ".join(self._nested) or "a part of it"
            why = f"{which} was compiled by itself, and the copy would call the same engine"
            raise TypeError(f"{self.report.name} cannot be copied: {why}; compile a copy of the model")
        needed = self._interface.weights
        with self._refitting:
            self._require_whole()
            engine, current = self._swap.engine, self._weights
            made = _copy_tensors(current)
            from_engine = {
                name for one in needed if one.slot is not None and one.name in made for name in one.slot.names
            }
            others = {name: one for name, one in self._state.items() if name not in from_engine}
            state = tensors_by_name(self._interface, EngineWeights(made), _copy_tensors(others))
        slots = [self._interface.slots[index] for index in current.source_weights]
        sources = {slot.index: state[slot.names[0]] for slot in slots if slot.names}
        weights = EngineWeights(made, own=made, source_weights=sources)
        try:
            other = self._with_engine(engine, weights, state)
        except RefitError:
            if any(weight.is_mutated for weight in needed):
                raise
            other = copy.copy(self)  # a plan contains its weights: there is nothing to copy
        memo[id(self)] = other
        return other

    def _with_engine(
        self, engine: Engine, weights: EngineWeights, state: dict[str, torch.Tensor]
    ) -> CompiledModule[Output]:
        """Return this module with other weights, in a second engine object."""
        other = copy.copy(self)
        other._swap = self._swap.another(engine.refit(weights), weights)
        other._state = state
        other._module_call = self._module_call.another(
            other._swap
        )  # without on_guard, which has the first module's weights
        other._refitting = fork_safe_lock()
        return other

    # What torch.nn.Module offers. Its parameters, buffers and submodules are created on first use: a hit does without.

    def name_weights(self, model: torch.nn.Module) -> None:
        """Take from the model: names and kinds of weights, those that the program does not use, and other tensors."""
        kept = [name for slot in self._interface.slots if not slot.transient for name in slot.names]
        self._held = HeldTensors.of(model, kept, self._constants.values())
        self._names = ModelNames.of(model, {name for slot in self._interface.slots for name in slot.names})
        live = self._executable.live
        if not isinstance(model, torch.jit.ScriptModule):  # in which a compiled module is only an operator
            self._known = self._executable.known
        self._nested = {
            path: part
            for path, part in model.named_modules(remove_duplicate=False)
            if isinstance(part, CompiledModule) and part.handle in live
        }
        self._state = {**self._names.unused, **self._state}
        self._drop_registries()

    def _state_with(self, weights: EngineWeights, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the state of other weights; those that the program does not use are the given ones, if any."""
        unused = {name: given[name].detach() for name in self._state.keys() & given.keys()}
        return tensors_by_name(self._interface, weights, {**self._state, **unused})

    @property
    def handle(self) -> str | None:
        """Identifies the engine in programs that tracers record; None if they cannot, or it is still being built."""
        path = vars(self).get("_module_call")
        return path.operator.handle if path is not None and path.operator is not None else None

    @property
    def changes_weights(self) -> bool:
        """Whether calls change weights; those of an engine that is still being built do not."""
        return self.ready and any(slot.mutated for slot in self._interface.slots)

    def _follow_nested(self) -> None:
        """Take the current weights of the compiled modules that the program calls."""
        if not self._nested:
            return
        with self._refitting:
            now: dict[str, torch.Tensor] = {}
            for path, part in self._nested.items():
                part._follow_nested()
                now |= {f"{prefix_of(path)}{name}": one for name, one in part._state.items()}
            changed = {name: one for name, one in now.items() if self._state.get(name, one) is not one}
            if changed:
                self._state = {**self._state, **changed}
                self._drop_registries()

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """Return the submodules by name, which have the weights; ``parameters`` and ``buffers`` use it."""
        self._follow_nested()
        return super().named_modules(*args, **kwargs)

    def _drop_registries(self) -> None:
        for name in _REGISTRIES:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Return a parameter, buffer or submodule, after creating all of them."""
        if _REGISTRIES[-1] not in self.__dict__ and not name.startswith("__"):
            with self._refitting:
                self._follow_nested()
                publish(self, self._model_names(), self._state)
            if name in _REGISTRIES:
                return self.__dict__[name]
        return super().__getattr__(name)

    def _model_names(self) -> ModelNames:
        if self._names is None:
            parameters = self.origin.parameters if self.origin is not None else frozenset()
            self._names = ModelNames.guess(self._interface, parameters)
        return self._names

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute that is not part of the model.

        Raises:
            TypeError: it is a module or a parameter, or has the name of one, of which the engine would know nothing.
        """
        state = self.__dict__
        is_new = "report" in state and name not in state and not hasattr(type(self), name)
        # Reading ``_modules`` creates the parameters as well, so that torch does not take their names for new ones.
        if is_new and self._is_weight_name(name) and name in self._modules:
            raise TypeError(f"{name}: a submodule of a compiled module cannot be replaced; refit changes weights")
        if isinstance(value, (torch.nn.Module, torch.nn.Parameter)):
            raise TypeError(
                f"{name}: a compiled module takes no further parameters or submodules; refit changes weights"
            )
        super().__setattr__(name, value)

    def register_parameter(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a parameter, of which the engine would know nothing.

        Raises:
            TypeError: always, unless torch refuses the name (KeyError).
        """
        getattr(self, _REGISTRIES[-1])  # torch needs the tables, which refuse it
        super().register_parameter(*args, **kwargs)

    def register_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a buffer, of which the engine would know nothing.

        Raises:
            TypeError: always, unless torch refuses the name (KeyError).
        """
        getattr(self, _REGISTRIES[-1])
        super().register_buffer(*args, **kwargs)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute that is not part of the model.

        Raises:
            TypeError: it is a weight or a submodule.
        """
        if name not in self.__dict__ and self._is_weight_name(name):
            raise TypeError(f"{name}: the weights of a compiled module cannot be deleted, since its engine uses them")
        super().__delattr__(name)

    def _is_weight_name(self, name: str) -> bool:
        """Return whether a name is that of a parameter, a buffer or a submodule with some."""
        return any(one == name or one.startswith(f"{name}.") for one in self.__dict__.get("_state", ()))

    def train(self, mode: bool = True) -> CompiledModule[Output]:
        """Stay in eval mode; ``train(True)`` warns."""
        if mode:
            name = self.report.name
            warnings.warn(f"{name} is compiled for inference and stays in eval mode", UserWarning, stacklevel=2)
        return self

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> CompiledModule[Output]:  # noqa: ARG002
        """Refit with what ``fn`` makes of the weights, as ``to`` and ``share_memory`` of a module around it do.

        Raises:
            RefitError: another dtype or device, for which the engine was not built; nothing was changed. Or a refit
                failed part way.
        """
        self._require_whole()
        self._follow_nested()
        if changed := changed_by(fn, self._state):
            # What ``share_memory_`` has moved is still the tensor that calls change.
            moved = {name for name, one in changed.items() if storage_id(one) == storage_id(self._state[name])}
            self._refit_partially({name: one for name, one in changed.items() if name not in moved})
        return self

    def _refit_partially(self, given: Mapping[str, torch.Tensor]) -> None:
        """Refit with some weights; the others keep their values, also those that calls change meanwhile."""
        from trtcache.runtime.weight_source import SomeWeights

        changing = {name for slot in self._interface.slots if slot.mutated for name in slot.names}
        nested = tuple(map(prefix_of, self._nested))
        staying = self._known - changing
        kept = {name: one for name, one in self._state.items() if name in staying and not name.startswith(nested)}
        self.refit(SomeWeights({**kept, **given}))

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the current weights, by the model's names.

        Raises:
            RefitStoppedError: they are a mix, since a refit failed part way.
        """
        with self._refitting:  # else another thread's refit could come between two weights
            self._require_whole()
            self._follow_nested()
            return super().state_dict(*args, **kwargs)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Refit with the weights of a state_dict, as copies unless ``assign=True``; missing ones keep their values."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        self._follow_nested()
        given = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        kinds = self._model_names().kinds
        expected = [name for name, kind in kinds.items() if kind != "transient" and name in self._state]
        missing_keys += [prefix + name for name in expected if name not in given]
        known = (self._known | self._state.keys()) - (self._constant_names() - self._state.keys())
        usable = {name: value for name, value in given.items() if name in known}
        unexpected_keys += [prefix + name for name in given if name not in usable and not name.endswith("_extra_state")]
        if not local_metadata.get("assign_to_params_buffers"):
            # As torch does: in the dtype and on the device of the old weight, in memory of their own.
            for name in usable.keys() & self._state.keys():
                if isinstance(usable[name], torch.Tensor):
                    usable[name] = usable[name].detach().to(self._state[name], copy=True)
        if usable:
            try:
                for names in self._tied_names():  # one name of a tied weight is enough
                    if value := [usable[name] for name in names if name in usable]:
                        usable |= {name: value[0] for name in names if name not in usable}
                if not usable.keys() >= set(expected):  # missing ones keep their current values
                    self._require_whole()
                self._refit_partially(usable)
            except RefitError as error:
                error_msgs.append(f"{prefix.rstrip('.') or self.report.name}: {error}")

    def _tied_names(self) -> Iterable[Collection[str]]:
        """Return the names of each weight of the model; several of a tied one."""
        return [slot.names for slot in self._interface.slots]

    def _constant_names(self) -> Collection[str]:
        """Return the model's names of tensors that are constants of the program; state_dict has none of them."""
        return self._constants.keys()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled.

        Raises:
            PicklingError: always.
        """
        raise pickle.PicklingError(
            "a compiled module is not pickled: save it with trtcache.export(module, path) and load it with "
            "trtcache.load(path); or pickle the model, and compile it in the other process, which hits the cache"
        )

    def __repr__(self) -> str:
        """Return the program's name, backend and target."""
        report = vars(self).get("report")
        return f"CompiledModule({report.name}, {report.backend} for {report.target})" if report else "CompiledModule()"

    def find_copied(self, state: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the names in ``state`` of weights that the engine does not read from the given memory.

        An in-place change of such a weight has no effect before the next refit. Weights that the program does not use
        are not included.
        """
        live, found = self._weights, set()
        shares = self._swap.engine.shares_weights
        for weight in self._interface.weights:
            made, whole = live[weight.name].data_ptr(), weight.slot is not None
            names = [name for slot in weight.slots for name in slot.names if name in state]
            found |= {name for name in names if not (whole and shares and state[name].data_ptr() == made)}
        return frozenset(found)
