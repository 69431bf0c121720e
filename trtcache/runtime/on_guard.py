"""Policies for calls with sizes that the program was not exported for: run in torch, or compile another program."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from trtcache.config.threads import fork_safe_lock
from trtcache.errors import ExportError, GuardError, InputError, RefitError, RunError
from trtcache.runtime.verify import AutocastState, Modes, modes_of

if TYPE_CHECKING:
    from trtcache.runtime.module import CompiledModule
    from trtcache.runtime.report import Report

log = logging.getLogger(__name__)

_COPIED = "of which the engine for the other sizes has a copy: leave on_guard at 'error'"

MOST_PROGRAMS: Final = 8
"""The maximum number of programs of a compiled module, including the first."""


class TorchCalls:
    """Run calls in torch: with the model's own weights, or with those of a refit.

    It keeps the model, or its program, alive.

    Attributes:
        model: returns the model as a module.
        modes: the modes of its submodules when it was compiled, in which it runs; None if they cannot change.
        autocast: the autocast in which it runs.
    """

    def __init__(
        self, model: Callable[[], torch.nn.Module], modes: Modes | None = None, autocast: AutocastState | None = None
    ) -> None:
        """Store how to get the model as a module, and the modes and the autocast (by default this one) to run it in."""
        self.model, self.modes = model, modes
        self.autocast = AutocastState.here() if autocast is None else autocast
        self._refitted: torch.nn.Module | None = None
        self._copied: tuple[list[int], torch.nn.Module] | None = None

    def copy_with(self, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """Return a copy of the model with these weights, and the current ones for other names.

        Raises:
            RefitError: the model cannot be copied.
        """
        try:
            copied = with_state(self.model() if self._refitted is None else self._refitted, state)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise RefitError(
                mismatched=(f"the model, which cannot be copied to run with them in torch: {error}",)
            ) from error
        if self.modes is not None:
            _set_modes(copied, self.modes)
        return copied

    def use(self, refitted: torch.nn.Module) -> None:
        """Use a copy of the model with other weights."""
        self._refitted = refitted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, without gradients.

        Raises:
            RunError: it is in another mode than when it was compiled, and cannot be copied.
        """
        refitted = self._refitted
        with torch.no_grad(), self.autocast.apply():
            return (self._live() if refitted is None else refitted)(*args, **kwargs)

    def versions(self) -> dict[str, tuple[int, int]]:
        """Return the identity and the version counter of each weight of the module that runs, by name."""
        model = self.model() if self._refitted is None else self._refitted
        weights = (*model.named_parameters(), *model.named_buffers())
        return {name: (id(one), 0 if one.is_inference() else one._version) for name, one in weights}

    def _live(self) -> torch.nn.Module:
        """Return the model, or if its modes have changed, a copy that shares its weights."""
        model = self.model()
        if self.modes is None or modes_of(model) == self.modes:
            return model
        weights = [id(one) for one in (*model.parameters(), *model.buffers())]  # the copy keeps them alive
        if self._copied is None or self._copied[0] != weights:
            self._copied = weights, in_modes(model, self.modes)
        return self._copied[1]


def in_modes(model: torch.nn.Module, modes: Modes) -> torch.nn.Module:
    """Return a module if its submodules are in these modes, else a copy in them that shares its weights.

    The caller may train the module meanwhile, so that its own modes are not changed for the time of a call.

    Raises:
        RunError: it cannot be copied.
    """
    if modes_of(model) == modes:
        return model
    try:
        copied = with_state(model, {})
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        why = (
            "the model is in another mode (train or eval) than when it was compiled, and cannot be copied for that one"
        )
        raise RunError("torch", f"{why}: {error}") from error
    _set_modes(copied, modes)
    return copied


def _set_modes(model: torch.nn.Module, modes: Modes) -> None:
    for name, part in model.named_modules():
        if hasattr(part, "training"):  # frozen TorchScript has no modes
            part.training = name in modes


def with_state(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """Return a copy of a module with other weights in place of its own; what ``state`` does not name is shared.

    One name of a tied weight is enough.

    ``torch.func.functional_call`` assigns weights to the module itself for the time of a call: of calls in several
    threads some see those of others, and the module may keep them.
    """
    from trtcache.runtime.module import CompiledModule
    from trtcache.runtime.module_state import part_of

    if isinstance(model, torch.jit.ScriptModule):
        from trtcache.frontends.torchscript import Script, Scripted  # few models are TorchScript

        model = Scripted(Script(model))
    memo: dict[int, object] = {}
    for path, part in model.named_modules(remove_duplicate=False):
        if isinstance(part, CompiledModule):
            given = part_of(state, path)
            if given and part.find_differing_weights(given):
                memo[id(part)] = part.with_weights(given)
            elif not part.changes_weights:
                memo[id(part)] = part  # so that its refits apply to the copy, as to the model
    for name, parameter in model.named_parameters(remove_duplicate=False):
        memo.setdefault(id(parameter), parameter)
        if name in state:
            memo[id(parameter)] = torch.nn.Parameter(state[name].detach(), requires_grad=False)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        memo.setdefault(id(buffer), buffer)
        if name in state:
            memo[id(buffer)] = state[name].detach()
    return copy.deepcopy(model, memo)


def _weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what a refit takes, by all names: not the results of ``get_extra_state``."""
    state = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    return {name: state[name].detach() for name in model.state_dict() if name in state}


class OnGuard:
    """Answer the calls that a compiled module's guards reject.

    It keeps the model, or its program, alive as long as the compiled module.

    Attributes:
        policy: ``eager`` or ``compile``.
        programs: the programs compiled for such calls, the most recently used last.
    """

    def __init__(
        self,
        policy: str,
        report: Report,
        model: Callable[[], torch.nn.Module],
        compile_for: Callable[[tuple[Any, ...], Mapping[str, Any]], CompiledModule],
        modes: Modes | None = None,
        autocast: AutocastState | None = None,
    ) -> None:
        """Store how to get the model and how to compile it.

        Args:
            policy: ``eager`` or ``compile``.
            report: the first program's report, which lists the others'.
            model: returns the model as a module.
            compile_for: compiles it with other example inputs.
            modes: the modes of the model's submodules when it was compiled; None if they cannot change.
            autocast: the autocast of that time; by default this one.
        """
        self.policy = policy
        self.programs: list[CompiledModule] = []
        self._report, self._compile_for = report, compile_for
        self._in_torch = TorchCalls(model, modes, autocast)
        self._state: Mapping[str, torch.Tensor] | None = None
        self._lock = fork_safe_lock()
        self._compiling = fork_safe_lock()  # a build takes minutes, and calls with a program do not wait for it

    @contextmanager
    def refit(self, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Make programs with other weights, which answer the calls if the block ends without an exception.

        The weights that the model was compiled with are then no longer used.

        Args:
            state: weights by the model's names, on its devices. They are kept for programs that are compiled later.

        Raises:
            RefitError: the model cannot be copied, or see ``CompiledModule.refit``; nothing was changed.
        """
        # A parameter can be assigned other data; its detached tensor cannot.
        state = {name: one.detach() if isinstance(one, torch.Tensor) else one for name, one in state.items()}
        with self._lock:
            in_torch = self._in_torch.copy_with(state)
            # The other branches use weights that the caller may have left out.
            state = {**_weights_of(in_torch), **state}
            ready = [program.with_weights(state) if program.ready else program for program in self.programs]
            for program in ready:
                program.check_weights(state)
            yield
            self._in_torch.use(in_torch)
            for program, before in zip(ready, self.programs, strict=True):
                if program is before:  # it is still being built, and its calls run in torch
                    program.refit(state)
            self.programs, self._state = ready, state

    def answer(self, error: GuardError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what the model returns for a call that the guards rejected.

        Raises:
            GuardError: the model's program rejects the sizes as well, or cannot be exported with them.
        """
        if self.policy == "eager":
            return self._eager(error, args, kwargs)
        programs = list(reversed(self.programs))  # the list is replaced, never changed
        for program in programs:
            try:
                result = program(*args, **kwargs)
            except InputError:  # a program without dynamic sizes does not raise GuardError
                continue
            with self._lock:
                if self.programs[-1:] != [program] and program in self.programs:
                    self.programs = [*(one for one in self.programs if one is not program), program]
            return result
        return self._compile_program(error, args, kwargs, programs)(*args, **kwargs)

    def _eager(self, error: GuardError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        before = self._in_torch.versions()
        try:
            result = self._in_torch(*args, **kwargs)
        except AssertionError as refused:  # how ExportedProgram.module() rejects sizes
            if "Guard failed" in str(refused):
                raise error from refused
            raise
        if changed := [name for name, version in self._in_torch.versions().items() if before.get(name) != version]:
            raise RunError("torch", f"for these sizes the model changes {changed[0]}, {_COPIED}")
        return result

    def _compile_program(
        self,
        error: GuardError,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        refusing: Collection[CompiledModule],
    ) -> CompiledModule:
        with self._compiling:
            # Another thread may have compiled it in the meantime. Of a program of several engines, ``takes`` does not
            # know what they assume of sizes.
            for program in self.programs:
                if program not in refusing and program.takes(*args, **kwargs):
                    return program
            try:
                with self._in_torch.autocast.apply():
                    program = self._compile_for(args, kwargs)
            except ExportError as refused:
                raise GuardError(error.where, error.expected, error.found, f"{error.hint}; {refused}") from refused
            if changed := [slot.names[0] for slot in program.interface.slots if slot.mutated]:
                hint = f"{error.hint}; for these sizes the model changes {changed[0]}, {_COPIED}"
                raise GuardError(error.where, error.expected, error.found, hint)
            with self._lock:
                if self._state is not None:
                    program.refit(self._state)
                # Drop the least recently used program. It is in the cache, so it comes back without a build.
                self.programs = [*self.programs, program][-(MOST_PROGRAMS - 1) :]
                self._report.programs = [one.report for one in self.programs]
            log.info("compiled another program for sizes that the first one was not exported for: %s", error)
            return program
