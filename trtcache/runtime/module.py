"""The compiled module: an engine behind the model's own call signature."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import InputError, RefitError
from trtcache.lowering.contents import Content
from trtcache.runtime.inputs import InputCheck
from trtcache.runtime.layouts import laid_out, lies_in
from trtcache.runtime.operator import EngineCall, is_fake, is_traced, separate
from trtcache.weights import fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.backends.protocol import Engine
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.report import Report
    from trtcache.runtime.signature import CallSignature

_EXTRA_STATE = "_extra_state"  # torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX


class CompiledModule:
    """A model compiled for inference: called like the model, answers with its output structure, without gradients.

    Weights are shared with the model where their layout allows, so an in-place update of the model shows here as well;
    a weight that had to be copied (another layout, or one that calls change) does not follow, and neither does one that
    was made from several, as those of a convolution with the BatchNorm after it folded in: ``refit`` makes it anew.

    Attributes:
        report: what ``compile`` did.
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
        self._interface = executable.interface
        self._device = executable.device
        self._known = executable.known
        self._constants = executable.sources
        self._call = call
        self._check = InputCheck(self._interface, self._device, call.label)
        self._results = self._interface.results
        self._plain = all(result.kind == "result" for result in self._results)
        self._layouts = tuple(one.layout for one in self._results if one.kind != "value")
        self._live = (engine, dict(weights))
        self._refitting = threading.Lock()
        self._operator = EngineCall.of(self._interface, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would return.

        The values of tensors are not looked at: an index out of range, which eager answers with an ``IndexError``, ends
        the process, as it does on a GPU.

        Raises:
            InputError: an argument is not what the module was compiled for; nothing was run.
        """
        leaves = self._call.flatten(args, kwargs)
        if is_traced() and self._operator is not None:
            self._check.values(leaves)
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
        outputs = self._live[0].run(inputs)
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
        tensors = {one.leaf: given for one, given in zip(self._interface.inputs, inputs, strict=True)}
        leaves: dict[int, Any] = {**values, **tensors}
        outputs = self._answer([leaves.get(leaf) for leaf in range(max(leaves, default=-1) + 1)])
        dense = [one if order else one.contiguous() for one, order in zip(outputs, self._layouts, strict=True)]
        return separate(dense, inputs)

    def _completed(self, outputs: list[torch.Tensor], leaves: Any) -> list[Any]:
        """Write new contents back to the caller's inputs, and put constants where the model returns them."""
        results: list[Any] = []
        remaining = iter(outputs)
        for result in self._results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "input":
                with torch.no_grad():
                    leaves[result.target].copy_(next(remaining))
            else:
                results.append(next(remaining))
        return results

    def refit(self, weights: torch.nn.Module | Mapping[str, torch.Tensor]) -> None:
        """Put other weights into the engine, without a build. Calls that run meanwhile keep the old ones.

        Numbers and flags of a module (a dropout rate, a scale kept as a float) are part of the program, not weights: a
        module that differs in them has to be compiled, which finds its own entry or builds one.

        Args:
            weights: a module of the same architecture, or its state_dict. Names of weights that the program does not
                use may be there; each that it uses must be.

        Raises:
            RefitError: a weight is missing, unknown, or of another shape, dtype or device; a module's constants differ
                from those that are part of the program; all are named, and the old weights are still in place.
        """
        state = self._state(weights)
        with self._refitting:
            engine, current = self._live
            needed = self._interface.weights
            chosen = fit(needed, state, known=self._known, device=self._device, current=current)
            self._live = (engine.refit(chosen), chosen)

    def with_weights(self, state: Mapping[str, torch.Tensor]) -> CompiledModule:
        """Return another module of the same engine, with these weights; this one keeps its own.

        Raises:
            RefitError: as ``refit``.
        """
        engine, current = self._live
        needed = self._interface.weights
        chosen = fit(needed, self._state(state), known=self._known, device=self._device, current=current)
        other = copy.copy(self)
        other._live = (engine.refit(chosen), chosen)
        other._operator = self._operator.another(other) if self._operator else None
        other._refitting = threading.Lock()
        return other

    def copied(self, state: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the names in ``state`` of weights that the engine does not read where they lie.

        A change of such a weight in place does not show before the next refit. Weights that the program does not use
        are not among them.
        """
        live, found = self._live[1], set()
        for weight in self._interface.weights:
            made, whole = live[weight.name].data_ptr(), weight.slot is not None
            names = [name for slot in weight.slots for name in slot.names if name in state]
            found |= {name for name in names if not (whole and state[name].data_ptr() == made)}
        return frozenset(found)

    def _state(self, weights: torch.nn.Module | Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        if isinstance(weights, torch.nn.Module):
            self._check_constants(weights)
            weights = weights.state_dict(keep_vars=True)
        if not isinstance(weights, Mapping):
            raise TypeError(f"refit takes a torch.nn.Module or its state_dict, not {type(weights).__name__}")
        # What a module's get_extra_state returned is no weight.
        return {name: one for name, one in weights.items() if name in self._known or not name.endswith(_EXTRA_STATE)}

    def _check_constants(self, module: torch.nn.Module) -> None:
        changed = [
            f"{name} (a constant of the program; compile the new model instead)"
            for name, content in self._constants.items()
            if isinstance(value := _attribute(module, name), torch.Tensor) and Content.of(value) != content
        ]
        if changed:
            raise RefitError(mismatched=tuple(changed))


def _attribute(module: torch.nn.Module, name: str) -> object:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
