"""The compiled module: an engine with the model's call signature."""

from __future__ import annotations

import copy
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trtcache.config import threads as thread_counts
from trtcache.config.threads import Threads
from trtcache.errors import GuardError, InputError, RefitError, VerifyError
from trtcache.lowering.interface import FixedSize, describe, symbol_names
from trtcache.runtime.checks import bind_sizes, evaluate_size
from trtcache.runtime.inputs import InputCheck
from trtcache.runtime.memory import has_layout, to_layout
from trtcache.runtime.operator import EngineCall, is_fake, is_tracing, separate_memory
from trtcache.runtime.refit import EngineSwap, make_new_weights, refit
from trtcache.runtime.report import RefitReport
from trtcache.runtime.runners import Runners, parts_at_once, report_on, side_by_side
from trtcache.runtime.verify import Examples, compare, eager, tolerance_of
from trtcache.runtime.weight_source import WeightSource
from trtcache.weights.slots import EngineWeights, check, fit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.utils import _pytree as pytree

    from trtcache.backends.protocol import Engine
    from trtcache.lowering.interface import Interface
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.on_guard import OnGuard
    from trtcache.runtime.provenance import Provenance
    from trtcache.runtime.refit import RefitResult
    from trtcache.runtime.report import Report
    from trtcache.runtime.signature import CallSignature
    from trtcache.runtime.weight_source import Weights
    from trtcache.weights.slots import SlotWeights


class WeightFile(Protocol):
    """Reads weights of ONNX files."""

    def reads(self, weights: object) -> bool:
        """Return whether weights are the path of such a file."""
        ...

    def read(self, path: Any) -> Mapping[str, torch.Tensor]:
        """Return the weights of another file of the same graph, by the names of the file that was compiled."""
        ...

    def current(self) -> Mapping[str, torch.Tensor]:
        """Return the weights of the file that was compiled, by the engine's names for them."""
        ...


class CompiledModule:
    """A model compiled for inference: called like the model, returns outputs of its structure, without gradients.

    Weights are shared with the model where their layout allows, so an in-place update of the model applies here too. A
    weight that had to be copied (another layout, or one that calls modify) does not follow, nor does one computed from
    several, as a convolution's with the BatchNorm after it folded in: ``refit`` computes it again.

    Attributes:
        report: what ``compile`` did.
        examples: the inputs given to ``compile``, if they were kept; ``refit(..., verify=True)`` uses them.
        threads: the value of ``settings.threads``.
        origin: the stored engines, for ``export``; None without any.
        on_guard: answers calls with sizes that the program was not exported for; None if they raise.
        weight_file: reads weights of files like the one that was compiled, for ONNX; None if any file of weights can be
            read. The module's own weights are in the plan, and are read from the file for the first refit.
    """

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
        self.report: Report
        self.origin: Provenance | None = None
        self.on_guard: OnGuard | None = None
        self.weight_file: WeightFile | None = None
        self._executable = executable
        self._interface = executable.interface
        self._device = executable.device
        self._known = executable.known
        self._constants = executable.sources
        self._call = call
        self._check = InputCheck(self._interface, self._device, call.label)
        self._results = self._interface.results
        self._plain = all(result.kind == "result" for result in self._results)
        self._has_sizes = any(result.kind == "size" for result in self._results)
        self._layouts = tuple(one.layout for one in self._results if one.is_output)
        self._swap = EngineSwap(engine)
        self._weights = weights if isinstance(weights, EngineWeights) else EngineWeights(weights)
        self._refitting = threading.Lock()
        self.examples = Examples()
        self.threads = Threads()
        self._operator = EngineCall.of(self._interface, self)

    @property
    def ready(self) -> bool:
        """Whether the engine answers the calls: always, unless it is built in the background."""
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a build in the background has ended; return ``ready``."""
        del timeout
        return True

    def add_done_callback(self, callback: Callable[[CompiledModule], object]) -> None:
        """Call ``callback(module)`` when a build in the background has ended; at once if there is none."""
        callback(self)

    @property
    def interface(self) -> Interface:
        """The engine's inputs, results and weights."""
        return self._interface

    @property
    def in_spec(self) -> pytree.TreeSpec:
        """The pytree spec of the call's arguments."""
        return self._call.in_spec

    def note_fixed_sizes(self, automatic: Mapping[tuple[int, int | None], str]) -> None:
        """Report the sizes that were to vary and that torch fixed, and name the reason in errors for other sizes.

        Args:
            automatic: (leaf of the arguments, dimension or None for an int) -> why torch fixed it, or an empty text.
        """
        sizes: dict[tuple[int, int | None], object] = {(one.leaf, None): one.value for one in self._interface.values}
        for one in self._interface.inputs:
            places = [None] if one.number else range(len(one.shape))  # an int is the first size of its tensor
            sizes |= {(one.leaf, place): size for place, size in zip(places, one.shape, strict=False)}
        for (leaf, dimension), why in automatic.items():
            size = sizes.get((leaf, dimension))
            if type(size) is int:
                reason = f"since the example's is {size}" if size < 2 and not why else why
                self._check.fixed_sizes[leaf, dimension] = FixedSize(self._call.label(leaf), dimension, size, reason)
        self.report.fixed_sizes = tuple(self._check.fixed_sizes.values())

    @property
    def guards(self) -> tuple[str, ...]:
        """The program's guards: conditions on the sizes of its arguments."""
        inputs = ((one.leaf, one.shape, one.number) for one in self._interface.inputs)
        names = symbol_names(inputs, self._call.label)
        return tuple(describe(guard, names) for guard in self._interface.conditions)

    def stored_form(self) -> tuple[Executable, CallSignature, EngineWeights]:
        """Return what ``export`` writes beside the engines, with the current weights."""
        with self._refitting:
            return self._executable, self._call, self._weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would return.

        Values of tensors are not checked: an index out of range, for which eager mode raises ``IndexError``, ends the
        process, as on a GPU.

        Raises:
            GuardError: the program was exported for other sizes, and ``on_guard`` is ``error``; nothing ran.
            InputError: an argument does not match what the module was compiled for; nothing ran.
        """
        if self.on_guard is None:
            return self._run(args, kwargs)
        try:
            return self._run(args, kwargs)
        except GuardError as error:
            refused = error
        return self.on_guard.answer(refused, args, kwargs)

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call with these arguments would run, without running it."""
        try:
            self._check(self._call.flatten(args, kwargs))
        except InputError:
            return False
        return True

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = self._call.flatten(args, kwargs)
        if is_tracing() and self._operator is not None:
            self._check.check_values(leaves)
            self._check.check_numbers(leaves)
            outputs = self._operator(leaves)
        else:
            outputs = self._answer(leaves)
        if not self._plain:
            outputs = self._finish_results(outputs, leaves)
        return self._call.unflatten(outputs)

    def _answer(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's outputs in the model's layouts."""
        try:
            inputs = self._check(leaves)
        except InputError:
            if self._operator is None or not is_fake(leaves):
                raise
            return self._operator(leaves)
        intra = self.threads.intra
        outputs = self._swap.run(inputs) if intra is None else thread_counts.run_with(intra, self._swap.run, inputs)
        for place, order in enumerate(self._layouts):
            if order is not None and not has_layout(outputs[place], order):
                outputs[place] = to_layout(outputs[place], order)
        return outputs

    def execute(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run ``trtcache::execute_engine``, which a tracer recorded: from engine inputs to engine outputs.

        Raises:
            InputError: an input does not match what the module was compiled for; nothing ran.
        """
        values = {one.leaf: one.value for one in self._interface.values}
        pairs = zip(self._interface.inputs, inputs, strict=True)
        tensors = {one.leaf: source.shape[0] if one.number else source for one, source in pairs}
        leaves: dict[int, Any] = {**values, **tensors}
        outputs = self._answer([leaves.get(leaf) for leaf in range(max(leaves, default=-1) + 1)])
        dense = [one if order else one.contiguous() for one, order in zip(outputs, self._layouts, strict=True)]
        return separate_memory(dense, inputs)

    def _finish_results(self, outputs: list[torch.Tensor], leaves: Any) -> list[Any]:
        """Write new contents back to the caller's inputs, and insert the model's non-tensor results."""
        results: list[Any] = []
        remaining = iter(outputs)
        sizes = self._sizes(leaves)
        for result in self._results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "size":
                results.append(evaluate_size(result.value, sizes))
            elif result.kind == "number":
                results.append(next(remaining).item())
            elif result.kind == "input":
                with torch.no_grad():
                    leaves[result.target].copy_(next(remaining))
            else:
                results.append(next(remaining))
        return results

    def _sizes(self, leaves: Any) -> dict[int, int]:
        """Return the values of symbols for this call, if results depend on them."""
        if not self._has_sizes:
            return {}
        inputs = self._interface.inputs
        return bind_sizes(inputs, [leaves[one.leaf] for one in inputs])

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
        if self.weight_file is not None:
            if self.weight_file.reads(weights):
                weights = self.weight_file.read(weights)
            self._weights = self._weights or EngineWeights(self.weight_file.current())
        source = WeightSource.of(weights, known=self._known, constants=self._constants)
        needed = self._interface.weights
        with self._refitting:
            sources = check(
                needed, source.state, known=self._known, device=self._device, keep=True, anywhere=source.is_file
            )
            off_by = None
            if verify is False:
                refitted = refit(self._swap, self._weights, needed, sources, device=self._device)
            else:
                inputs = self._inputs(args, kwargs)
                refitted, off_by = self._refit_verified(sources, source, inputs, tolerance)
            self._weights = refitted.weights
            if self.on_guard is not None:
                self.on_guard.refit(weights, source.state)
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
        candidate._swap = EngineSwap(self._swap.engine.refit(refitted.weights))
        state = {name: refitted.weights[one.name].clone() for one, slot in changing for name in slot.names}
        module = source.module
        if module is None:
            module = self.examples.module
            state = sources.by_name(self._interface.slots) | state
        dtypes = {one.dtype for one in refitted.weights.values()}
        off_by = compare(
            eager(module, state), candidate, *inputs, tolerance=tolerance, dtypes=dtypes, device=self._device
        )
        engine = candidate._swap.engine
        if changing:  # the call modified them
            refitted = make_new_weights(self._weights, needed, sources, device=self._device)
            engine = engine.refit(refitted.weights)
        self._swap.swap_in(engine)
        return refitted, off_by

    def runners(self, count: int | None = None, *, intra: int | None = None) -> Runners:
        """Return threads that call this module in parallel, on one engine with its weights in memory once.

        Args:
            count: the number of threads; by default that of ``trtcache.threads`` or the settings, or else as many as
                the cores allow. If given, those settings apply to the partitions of each call.
            intra: intra-op threads of each call; by default the number in force here, or a share of the cores if none
                was chosen.

        Returns:
            An object with ``submit`` and ``map``; its ``report`` says whether calls run in parallel, or why not.

        Raises:
            SettingsError: a number is less than 1.
        """
        Threads(intra, count)
        found = thread_counts.in_force(self.threads)
        parts = 1 if count is None else parts_at_once(self._swap.engine, found)
        count = count or (max(1, found.cores // intra) if intra and found.inter_from == "cores" else found.inter)
        changing = any(weight.is_mutated for weight in self._interface.weights)
        with self._refitting:
            engine, why_not = side_by_side(self._swap.engine, count, changes_weights=changing)
            if engine is not self._swap.engine:
                self._swap.swap_in(engine)
        return Runners(self, report_on(count, intra, found, why_not, inter=parts))

    def with_weights(self, state: Mapping[str, torch.Tensor]) -> CompiledModule:
        """Return another module of the same engine with these weights; this one keeps its own.

        Raises:
            RefitError: see ``refit``.
        """
        source = WeightSource.of(state, known=self._known, constants=self._constants)
        with self._refitting:
            engine, current, needed = self._swap.engine, self._weights, self._interface.weights
            fitted = fit(needed, source.state, known=self._known, device=self._device, current=current)
        return self._of(engine, fitted)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule:
        """Return another module of the same engine with a copy of the current weights.

        Weights computed by a recipe lose their link to the model: refit the copy before exporting it.

        Raises:
            RefitError: the engine contains weights that calls modify.
        """
        needed = self._interface.weights
        with self._refitting:
            engine, current = self._swap.engine, self._weights
            made = copy.deepcopy({name: one.detach() for name, one in current.items()})
        try:
            other = self._of(engine, EngineWeights(made, own=made))
        except RefitError:
            if any(weight.is_mutated for weight in needed):
                raise
            other = copy.copy(self)  # a plan contains its weights: there is nothing to copy
        memo[id(self)] = other
        return other

    def _of(self, engine: Engine, weights: EngineWeights) -> CompiledModule:
        """Return this module with other weights, in a second engine object."""
        other = copy.copy(self)
        other.on_guard = None  # it has the first module's weights
        other._swap, other._weights = EngineSwap(engine.refit(weights)), weights
        other._operator = EngineCall.of(self._interface, other)
        other._refitting = threading.Lock()
        return other

    def find_copied(self, state: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the names in ``state`` of weights that the engine does not read from the given memory.

        An in-place change of such a weight has no effect before the next refit. Weights that the program does not use
        are not included.
        """
        live, found = self._weights, set()
        for weight in self._interface.weights:
            made, whole = live[weight.name].data_ptr(), weight.slot is not None
            names = [name for slot in weight.slots for name in slot.names if name in state]
            found |= {name for name in names if not (whole and state[name].data_ptr() == made)}
        return frozenset(found)
