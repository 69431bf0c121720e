"""The compiled module: an engine behind the model's own call signature."""

from __future__ import annotations

import copy
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config import threads as thread_counts
from trtcache.config.threads import Threads
from trtcache.errors import GuardError, InputError, RefitError, VerifyError
from trtcache.lowering.guard_text import describe, symbol_names
from trtcache.runtime.engine_swap import Gate
from trtcache.runtime.inputs import InputCheck, bind_sizes, evaluate_size
from trtcache.runtime.layouts import laid_out, lies_in
from trtcache.runtime.operator import EngineCall, is_fake, is_traced, separate
from trtcache.runtime.refit import beside, refit
from trtcache.runtime.report import RefitReport
from trtcache.runtime.runners import Runners, parts_at_once, report_on, side_by_side
from trtcache.runtime.verify import Examples, compare, eager, tolerance_of
from trtcache.runtime.weight_source import Given
from trtcache.weights.slots import EngineWeights, check, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.backends.protocol import Engine
    from trtcache.lowering.interface import Interface
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.on_guard import OnGuard
    from trtcache.runtime.provenance import Origin
    from trtcache.runtime.refit import Refitted
    from trtcache.runtime.report import Report
    from trtcache.runtime.signature import CallSignature
    from trtcache.runtime.weight_source import Weights
    from trtcache.weights.slots import SlotWeights


class CompiledModule:
    """A model compiled for inference: called like the model, answers with its output structure, without gradients.

    Weights are shared with the model where their layout allows, so an in-place update of the model shows here as well;
    a weight that had to be copied (another layout, or one that calls change) does not follow, and neither does one that
    was made from several, as those of a convolution with the BatchNorm after it folded in: ``refit`` makes it anew.

    Attributes:
        report: what ``compile`` did.
        examples: what it was given, as far as that is kept; ``refit(..., verify=True)`` uses it.
        threads: what ``settings.threads`` said.
        origin: the engines as they are stored, for who writes them to a file; None where there are none.
        on_guard: what answers calls with sizes that the program was not exported for; None where they are errors.
    """

    def __init__(
        self, executable: Executable, engine: Engine, weights: Mapping[str, torch.Tensor], call: CallSignature
    ) -> None:
        """Put an engine behind a call signature.

        Args:
            executable: what the engine was made from.
            engine: a live engine with weights in it.
            weights: those weights, by the engine's names.
            call: how arguments and outputs are flattened.
        """
        self.report: Report
        self.origin: Origin | None = None
        self.on_guard: OnGuard | None = None
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
        self._gate = Gate(engine)
        self._weights = weights if isinstance(weights, EngineWeights) else EngineWeights(weights)
        self._refitting = threading.Lock()
        self.examples = Examples()
        self.threads = Threads()
        self._operator = EngineCall.of(self._interface, self)

    @property
    def interface(self) -> Interface:
        """What goes into the engine and comes out of it, and its weights."""
        return self._interface

    @property
    def guards(self) -> tuple[str, ...]:
        """What the program was exported for, as conditions on the sizes of its arguments."""
        inputs = ((one.leaf, one.shape, one.number) for one in self._interface.inputs)
        names = symbol_names(inputs, self._call.label)
        return tuple(describe(guard, names) for guard in self._interface.conditions)

    def stored_form(self) -> tuple[Executable, CallSignature, EngineWeights]:
        """Return what a file of the program is written from, beside its engines: the weights are those of this time."""
        with self._refitting:
            return self._executable, self._call, self._weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would return.

        The values of tensors are not looked at: an index out of range, which eager answers with an ``IndexError``, ends
        the process, as it does on a GPU.

        Raises:
            GuardError: the program was exported for other sizes, and ``on_guard`` is ``error``; nothing was run.
            InputError: an argument is not what the module was compiled for; nothing was run.
        """
        if self.on_guard is None:
            return self._run(args, kwargs)
        try:
            return self._run(args, kwargs)
        except GuardError as error:
            refused = error
        return self.on_guard.answer(refused, args, kwargs)

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Say whether a call with these arguments would run, without running it."""
        try:
            self._check(self._call.flatten(args, kwargs))
        except InputError:
            return False
        return True

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = self._call.flatten(args, kwargs)
        if is_traced() and self._operator is not None:
            self._check.values(leaves)
            self._check.numbers(leaves)
            outputs = self._operator(leaves)
        else:
            outputs = self._answer(leaves)
        if not self._plain:
            outputs = self._completed(outputs, leaves)
        return self._call.unflatten(outputs)

    def _answer(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's outputs in their layouts."""
        try:
            inputs = self._check(leaves)
        except InputError:
            if self._operator is None or not is_fake(leaves):
                raise
            return self._operator(leaves)
        intra = self.threads.intra
        outputs = self._gate.run(inputs) if intra is None else thread_counts.run_with(intra, self._gate.run, inputs)
        for place, order in enumerate(self._layouts):
            if order is not None and not lies_in(outputs[place], order):
                outputs[place] = laid_out(outputs[place], order)
        return outputs

    def execute(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Do the work of ``trtcache::execute_engine``, which a tracer has seen: the engine's inputs to its outputs.

        Raises:
            InputError: an input is not what the module was compiled for; nothing was run.
        """
        values = {one.leaf: one.value for one in self._interface.values}
        pairs = zip(self._interface.inputs, inputs, strict=True)
        tensors = {one.leaf: given.shape[0] if one.number else given for one, given in pairs}
        leaves: dict[int, Any] = {**values, **tensors}
        outputs = self._answer([leaves.get(leaf) for leaf in range(max(leaves, default=-1) + 1)])
        dense = [one if order else one.contiguous() for one, order in zip(outputs, self._layouts, strict=True)]
        return separate(dense, inputs)

    def _completed(self, outputs: list[torch.Tensor], leaves: Any) -> list[Any]:
        """Write new contents back to the caller's inputs, and put numbers where the model returns them."""
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
        """Return the values of symbols for this call, if results are made of them."""
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
        """Put other weights into the engine, without a build. A call has the old ones or the new, never some of both.

        Numbers and flags of a module (a dropout rate, a scale kept as a float) are part of the program, not weights: a
        module that differs in them has to be compiled, which finds its own entry or builds one.

        Args:
            weights: a module of the same architecture, its state_dict, or the path of a file of weights, which is
                mapped and not copied. Names of weights that the program does not use may be there; each that it uses
                must be.
            verify: compare with eager torch first: True, or how much of its largest value an output may be off by.
                Eager is the module that is given, or else the one that was compiled if it is still there.
            args: inputs for that; by default those that ``compile`` was given, if they were not large.
            kwargs: such inputs by name.

        Returns:
            What changed.

        Raises:
            RefitError: a weight is missing, unknown, or of another shape, dtype or device; a module's constants differ
                from those that are part of the program; all are named, and the old weights are still in place.
            VerifyError: the outputs differ from eager's by too much, or there is nothing to compare; likewise.
            WeightsFileError: the file cannot be read.
            SettingsError: ``verify`` is nothing that an output can be off by.
            NoDeviceError: it is a plan, and there is no GPU.
        """
        start = time.perf_counter()
        tolerance = tolerance_of(verify)
        given = Given.of(weights, known=self._known, constants=self._constants)
        needed = self._interface.weights
        with self._refitting:
            sources = check(
                needed, given.state, known=self._known, device=self._device, keep=True, anywhere=given.is_file
            )
            off_by = None
            if verify is False:
                refitted = refit(self._gate, self._weights, needed, sources, device=self._device)
            else:
                inputs = self._inputs(args, kwargs)
                refitted, off_by = self._verified(sources, given, inputs, tolerance)
            self._weights = refitted.weights
            if self.on_guard is not None:
                self.on_guard.refit(weights, given.state)
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

    def _verified(
        self,
        sources: SlotWeights,
        given: Given,
        inputs: tuple[tuple[Any, ...], Mapping[str, Any]],
        tolerance: float | None,
    ) -> tuple[Refitted, float]:
        """Put weights in after their engine has answered as eager torch does, within a tolerance."""
        needed = self._interface.weights
        changing = [(one, slot) for one in needed if (slot := one.slot) is not None and slot.mutated]
        refitted = beside(self._weights, needed, sources, device=self._device)
        candidate = copy.copy(self)
        candidate._gate = Gate(self._gate.engine.refit(refitted.weights))
        state = {name: refitted.weights[one.name].clone() for one, slot in changing for name in slot.names}
        module = given.module
        if module is None:
            module = self.examples.module
            state = sources.by_name(self._interface.slots) | state
        dtypes = {one.dtype for one in refitted.weights.values()}
        off_by = compare(
            eager(module, state), candidate, *inputs, tolerance=tolerance, dtypes=dtypes, device=self._device
        )
        engine = candidate._gate.engine
        if changing:  # the call has changed them
            refitted = beside(self._weights, needed, sources, device=self._device)
            engine = engine.refit(refitted.weights)
        self._gate.open(engine)
        return refitted, off_by

    def runners(self, count: int | None = None, *, intra: int | None = None) -> Runners:
        """Return threads that call this module side by side, on one engine with its weights in memory once.

        Args:
            count: how many; by default what ``trtcache.threads`` or the settings say, or else what the cores have room
                for. Where it is given, what they say is for the parts of each call.
            intra: how many threads work on each call; by default the number in force here, or a share of the cores
                where nobody chose one.

        Returns:
            An object with ``submit`` and ``map``; its ``report`` says whether calls run side by side, or why not.

        Raises:
            SettingsError: a number is none from 1.
        """
        Threads(intra, count)
        found = thread_counts.in_force(self.threads)
        parts = 1 if count is None else parts_at_once(self._gate.engine, found)
        count = count or (max(1, found.cores // intra) if intra and found.inter_from == "cores" else found.inter)
        changing = any(weight.is_mutated for weight in self._interface.weights)
        with self._refitting:
            engine, why_not = side_by_side(self._gate.engine, count, changes_weights=changing)
            if engine is not self._gate.engine:
                self._gate.open(engine)
        return Runners(self, report_on(count, intra, found, why_not, inter=parts))

    def with_weights(self, state: Mapping[str, torch.Tensor]) -> CompiledModule:
        """Return another module of the same engine, with these weights; this one keeps its own.

        Raises:
            RefitError: as ``refit``.
        """
        given = Given.of(state, known=self._known, constants=self._constants)
        with self._refitting:
            engine, current, needed = self._gate.engine, self._weights, self._interface.weights
            chosen = fit(needed, given.state, known=self._known, device=self._device, current=current)
        return self._of(engine, chosen)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule:
        """Return another module of the same engine, with weights of its own that are now as these are.

        Weights that a recipe made of others know no model any more: before it is exported the copy is refitted.

        Raises:
            RefitError: the engine has weights in it, which calls change.
        """
        needed = self._interface.weights
        with self._refitting:
            engine, current = self._gate.engine, self._weights
            made = copy.deepcopy({name: one.detach() for name, one in current.items()})
        try:
            other = self._of(engine, EngineWeights(made, own=made))
        except RefitError:
            if any(weight.is_mutated for weight in needed):
                raise
            other = copy.copy(self)  # a plan takes no other weights: there is nothing of its own to have
        memo[id(self)] = other
        return other

    def _of(self, engine: Engine, weights: EngineWeights) -> CompiledModule:
        """Return this module with other weights in an engine that is beside the given one."""
        other = copy.copy(self)
        other.on_guard = None  # it has the first one's weights
        other._gate, other._weights = Gate(engine.refit(weights)), weights
        other._operator = EngineCall.of(self._interface, other)
        other._refitting = threading.Lock()
        return other

    def copied(self, state: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the names in ``state`` of weights that the engine does not read where they lie.

        A change of such a weight in place does not show before the next refit. Weights that the program does not use
        are not among them.
        """
        live, found = self._weights, set()
        for weight in self._interface.weights:
            made, whole = live[weight.name].data_ptr(), weight.slot is not None
            names = [name for slot in weight.slots for name in slot.names if name in state]
            found |= {name for name in names if not (whole and state[name].data_ptr() == made)}
        return frozenset(found)
