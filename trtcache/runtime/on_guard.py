"""What a call does whose sizes the program was not exported for: run in torch, or compile another program."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

import torch

from trtcache.errors import ExportError, GuardError, InputError, SettingsError, did_you_mean
from trtcache.runtime.verify import eager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trtcache.runtime.module import CompiledModule
    from trtcache.runtime.report import Report
    from trtcache.runtime.weight_source import Weights

log = logging.getLogger(__name__)

POLICIES: Final = ("error", "eager", "compile")

MOST_PROGRAMS: Final = 8
"""How many programs a compiled module has at most, the first one included."""


def parse_on_guard(policy: object) -> str:
    """Return a policy.

    Raises:
        SettingsError: it is none, with the nearest one.
    """
    if policy in POLICIES:
        return str(policy)
    raise SettingsError("on_guard", f"{policy!r}: {did_you_mean(str(policy), list(POLICIES))}")


class OnGuard:
    """Answers the calls that a compiled module's guards refuse.

    It keeps the model, or its program, for as long as the compiled module lives.

    Attributes:
        policy: ``eager`` or ``compile``.
        programs: the programs that were compiled for such calls, the one that was used last at the end.
    """

    def __init__(
        self,
        policy: str,
        report: Report,
        model: Callable[[], torch.nn.Module],
        compile_for: Callable[[tuple[Any, ...], Mapping[str, Any]], CompiledModule],
    ) -> None:
        """Keep how the model is had and compiled.

        Args:
            policy: ``eager`` or ``compile``.
            report: of the first program; the others' are listed in it.
            model: returns the model as a module that torch runs.
            compile_for: compiles it with other example inputs.
        """
        self.policy = policy
        self.programs: list[CompiledModule] = []
        self._report, self._model, self._compile_for = report, model, compile_for
        self._weights: Weights | None = None
        self._state: Mapping[str, torch.Tensor] | None = None
        self._lock = threading.RLock()

    def refit(self, weights: Weights, state: Mapping[str, torch.Tensor]) -> None:
        """Give all programs other weights; those that the model was compiled with are no longer used.

        Args:
            weights: what the compiled module was refitted with.
            state: the same by the model's names.

        Raises:
            RefitError: as ``CompiledModule.refit``.
        """
        with self._lock:
            self._weights, self._state = weights, state
            for program in self.programs:
                program.refit(weights)

    def answer(self, error: GuardError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what the model returns for a call that guards refused.

        Raises:
            GuardError: the model's program refuses the sizes as well, or cannot be exported with them.
        """
        if self.policy == "eager":
            return self._eager(error, args, kwargs)
        with self._lock:
            programs = list(reversed(self.programs))
        for program in programs:
            try:
                result = program(*args, **kwargs)
            except InputError:  # of a program without sizes that vary it is no GuardError
                continue
            self._use(program)
            return result
        return self._compiled(error, args, kwargs)(*args, **kwargs)

    def _eager(self, error: GuardError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            with torch.no_grad():
                model = self._model()
                return model(*args, **kwargs) if self._state is None else eager(model, self._state)(*args, **kwargs)
        except AssertionError as refused:  # how ExportedProgram.module() refuses sizes
            if "Guard failed" in str(refused):
                raise error from refused
            raise

    def _compiled(self, error: GuardError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CompiledModule:
        with self._lock:
            for program in self.programs:  # another thread may have compiled it meanwhile
                if program.takes(*args, **kwargs):
                    return program
            try:
                program = self._compile_for(args, kwargs)
            except ExportError as refused:
                raise GuardError(error.where, error.expected, error.found, f"{error.hint}; {refused}") from refused
            if self._weights is not None:
                program.refit(self._weights)
            # The one that was used longest ago makes room. It is in the cache, so that it comes back without a build.
            self.programs = [*self.programs, program][-(MOST_PROGRAMS - 1) :]
            self._report.programs = [one.report for one in self.programs]
            log.info("compiled another program for sizes that the first one was not exported for: %s", error)
            return program

    def _use(self, program: CompiledModule) -> None:
        with self._lock:
            if self.programs[-1:] != [program] and program in self.programs:
                self.programs = [*(one for one in self.programs if one is not program), program]
