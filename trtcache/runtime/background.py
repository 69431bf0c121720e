"""Compiled modules whose engine is built in the background: they run in torch until it takes over.

A call reads once which of the two answers it, so none is a mix. The engine takes over with the weights of that moment:
under the lock of refits, and only if nothing has changed them since the engine copied or packed them.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from trtcache.config.threads import fork_safe_lock
from trtcache.errors import NotReadyError, RefitError, VerifyError
from trtcache.lowering.interface import Content
from trtcache.runtime.module import CompiledModule
from trtcache.runtime.module_state import ModelNames
from trtcache.runtime.on_guard import TorchCalls
from trtcache.runtime.report import RefitReport, Report
from trtcache.runtime.verify import modes_of
from trtcache.runtime.weight_source import HeldTensors, Weights, WeightSource, whole_weight
from trtcache.weights.fingerprints import Fingerprints, is_readable
from trtcache.weights.slots import EngineWeight, check, is_unchanged

log = logging.getLogger(__name__)

_MOST_COPIES = 10
_OF_THE_ENGINE = frozenset({"report", "_in_torch", "_known", "_names", "_state", "_non_persistent_buffers_set"})


class BackgroundModule(CompiledModule):
    """A compiled module that runs in torch while its engine is built, and for good if that fails.

    Until it is ready, ``refit`` applies to the calls in torch. What only an engine has, such as ``export`` and
    ``runners``, raises NotReadyError.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        model: TorchCalls,
        report: Report,
        meanwhile: CompiledModule | None = None,
    ) -> None:
        """Answer calls in torch.

        Args:
            program: the exported program, which has the model's weights. Calls MUST NOT change them.
            model: runs the model.
            report: the report until the engine takes over.
            meanwhile: runs the calls until then, in place of the model: a compiled module with parts in torch.
        """
        torch.nn.Module.__init__(self)
        self._pending_lock = self._refitting = fork_safe_lock()
        self.training = False
        self.report = report
        if model.modes is None:
            model.modes = modes_of(model.model())
        self._model: TorchCalls | None = model
        self._in_torch: TorchCalls | CompiledModule | None
        vars(self)["_in_torch"] = meanwhile or model  # which is no submodule
        self._program: torch.export.ExportedProgram | None = program
        signature = program.graph_signature
        self._used = (*signature.parameters, *(name for name in signature.buffers if name in program.state_dict))
        self._given: Mapping[str, torch.Tensor] | None = None
        self._known = frozenset({**program.state_dict, **program.constants})
        self._names = ModelNames.of(model.model(), self._used)
        # Now, since the model may get others during the build. The program of a file has none.
        self._held = None
        if not isinstance(model.model(), torch.fx.GraphModule):
            self._held = HeldTensors.of(model.model(), self._used, self._constants_of(program).values())
        self._follow()
        self._done, self._pid = threading.Event(), os.getpid()
        self._callbacks: list[Callable[[CompiledModule], object]] = []

    def __getattr__(self, name: str) -> Any:
        """Raise an error for what only an engine has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            in_torch = vars(self).get("_in_torch")
            if in_torch is None or name.startswith("__"):
                raise
        if isinstance(in_torch, CompiledModule):
            return getattr(in_torch, name)
        raise self._not_ready(f"engine, which has {name.lstrip('_')!r}")

    def _not_ready(self, what: str) -> NotReadyError:
        name, state = self.report.name, self.report.background
        if self._done.is_set():
            remedy = "compile it again with on_miss='build' to get the error"
            return NotReadyError(name, what, f"its build failed ({state})", remedy)
        return NotReadyError(name, what, f"its engine is not built yet ({state})")

    def _meanwhile(self, what: str) -> CompiledModule | None:
        """Return the module that answers calls until the engine takes over, then None; raise if the model answers."""
        if isinstance(self._in_torch, TorchCalls):
            raise self._not_ready(what)
        return self._in_torch

    def __copy__(self) -> CompiledModule:
        """Return another module with the same engine.

        Raises:
            NotReadyError: it has none yet.
        """
        meanwhile = self._meanwhile("copy")
        return super().__copy__() if meanwhile is None else copy.copy(meanwhile)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule:
        """Return another module with a copy of the weights.

        Raises:
            NotReadyError: there is no engine yet.
        """
        meanwhile = self._meanwhile("deepcopy")
        return super().__deepcopy__(memo) if meanwhile is None else copy.deepcopy(meanwhile, memo)

    def with_weights(self, state: Mapping[str, torch.Tensor]) -> CompiledModule:
        """Return another module of the same engine with these weights.

        Raises:
            RefitError: see ``refit``.
            NotReadyError: there is no engine yet.
        """
        meanwhile = self._meanwhile("with_weights")
        return super().with_weights(state) if meanwhile is None else meanwhile.with_weights(state)

    @property
    def ready(self) -> bool:
        """Whether the engine answers the calls."""
        return self._in_torch is None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the engine takes over or has failed to; return whether it answers the calls.

        It returns False at once in a process that was forked meanwhile: the engine does not take over there.
        """
        if self._pid == os.getpid():
            self._done.wait(timeout)
        return self.ready

    def add_done_callback(self, callback: Callable[[CompiledModule], object]) -> None:
        """Call ``callback(module)`` when the engine takes over or has failed to; at once if that is past.

        It is called in the thread of the build. Its exceptions are logged.
        """
        with self._pending_lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        self._call_back(callback)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward`` and the hooks."""
        if vars(self)["_in_torch"] is None:
            return super().__call__(*args, **kwargs)
        return torch.nn.Module.__call__(self, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns.

        Raises:
            GuardError: as ``CompiledModule``, once the engine answers.
            InputError: as ``CompiledModule``, once the engine answers.
        """
        in_torch = self._in_torch
        return super().forward(*args, **kwargs) if in_torch is None else in_torch(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights of now, by the model's names."""
        with self._pending_lock:
            self._follow()
            return super().state_dict(*args, **kwargs)

    def _require_whole(self) -> None:
        if self._in_torch is None:
            super()._require_whole()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> CompiledModule:
        with self._pending_lock:
            self._follow()
            return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self._pending_lock:
            self._follow()
            super()._load_from_state_dict(*args, **kwargs)

    def _refit_partially(self, given: Mapping[str, torch.Tensor]) -> None:
        if self._in_torch is None:
            super()._refit_partially(given)
        else:
            self.refit({**self._state, **given})

    def _tied_names(self) -> Iterable[Collection[str]]:
        if self._program is None:
            return super()._tied_names()
        from trtcache.lowering.rewriting import group_tied  # which a hit does not need

        return group_tied(self._program.state_dict).values()

    def _constant_names(self) -> Collection[str]:
        return super()._constant_names() if self._program is None else self._program.constants.keys()

    def _follow(self) -> None:
        """Take the weights of the calls in torch for parameters and buffers: the model may have got others."""
        with self._pending_lock:
            if self._in_torch is not None and self._names is not None:
                self._state = {
                    **self._names.unused,
                    **{name: one.detach() for name, one in self._current_state().items()},
                }
                self._drop_registries()

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call with these arguments would run; in torch, that is left to the model."""
        return isinstance(self._in_torch, TorchCalls) or super().takes(*args, **kwargs)

    def refit(
        self,
        weights: Weights,
        *,
        verify: bool | float = False,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RefitReport:
        """Replace the weights, of the calls in torch and of the engine. See ``CompiledModule.refit``.

        Raises:
            RefitError: as ``CompiledModule.refit``.
            VerifyError: likewise, and if there is no engine yet to verify.
        """
        with self._pending_lock:
            in_torch, program = self._in_torch, self._program
            if in_torch is None or program is None:
                return super().refit(weights, verify=verify, args=args, kwargs=kwargs)
            state = self._read(weights, program)
            if isinstance(in_torch, CompiledModule):
                report = in_torch.refit(weights, verify=verify, args=args, kwargs=kwargs)
            elif verify is not False:
                raise VerifyError(why="the engine is not built yet; call wait() first")
            else:
                before, names = self._current_state(), [weight.label for weight in _weights_of(program)]
                changed = tuple(name for name in names if not is_unchanged(state[name].detach(), before[name].detach()))
                in_torch.use(in_torch.copy_with(state))
                report = RefitReport(len(names), changed, len(names))
            # A parameter can be assigned other data; its detached tensor, with which torch answers, cannot.
            self._given = {name: one.detach() for name, one in state.items() if isinstance(one, torch.Tensor)}
            self._follow()
            return report

    def check_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Check that a refit would take weights, if the engine is still being built; nothing is changed.

        Raises:
            RefitError: it would not.
        """
        with self._pending_lock:
            if self._program is not None:
                self._read(state, self._program)

    def _read(self, weights: Weights, program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
        """Return the weights of now with those that were given to a refit, by the model's names."""
        needed = _weights_of(program)
        devices = {one.device for one in program.state_dict.values()}
        device = next((one for one in devices if one.type != "cpu"), torch.device("cpu"))
        source = WeightSource.of(weights, known=self._known, constants=self._constants_of(program), held=self._held)
        sources = check(
            needed,
            source.state,
            known=self._known,
            device=device,
            anywhere=source.is_file,
            unused=program.state_dict,
        )
        state, old = dict(source.state), program.state_dict
        if source.is_file:
            state = {name: one.to(old[name].device) if name in old else one for name, one in state.items()}
        return {**self._current_state(), **state, **sources.by_name(one.slots[0] for one in needed)}

    @staticmethod
    def _constants_of(program: torch.export.ExportedProgram) -> dict[str, Content]:
        tensors = {name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)}
        return {name: Content.of(value) for name, value in tensors.items()}

    def _current_state(self) -> Mapping[str, torch.Tensor]:
        """Return the weights that calls in torch use now, by name."""
        state = self._given
        if state is None:
            assert self._model is not None  # noqa: S101  # there is no engine yet
            state = self._model.model().state_dict(keep_vars=True)
        if missing := tuple(name for name in self._used if name not in state):
            raise RefitError(missing)
        return {name: state[name] for name in self._used}

    def take_over(self, compiled: CompiledModule) -> None:
        """Let a loaded engine answer the calls from now on, with the weights that they have now.

        Args:
            compiled: the engine with weights of the model; those of which time does not matter.

        Raises:
            RefitError: the weights of now do not fit the program.
        """
        with self._pending_lock:
            model = self._model
            assert model is not None  # noqa: S101  # it happens once
            if self._held is None or compiled._held is None:
                self._held = compiled._held
            else:
                self._held.check(model.model())
            # Other threads may assign weights, or write to them, without a refit, and the engine has copied some.
            # Identities and values show a change during the copies, which are then made again. Weights that change all
            # the time, as in training, have no value of now.
            seen: list[object] | None = None
            known = Fingerprints()
            for _ in range(_MOST_COPIES):
                now = identities(self._current_state(), known)
                if now == seen:
                    break
                compiled.refit(model.model() if self._given is None else self._given)
                seen = now
            self._drop_registries()
            own = {name: value for name, value in vars(self).items() if name not in _OF_THE_ENGINE}
            vars(self).update({**vars(compiled), **own})
            compiled.report.compile_s, compiled.report.import_s = self.report.compile_s, self.report.import_s
            self.report = compiled.report
            self._program = self._given = self._model = None
            self._in_torch = None  # each call reads it once
        self._finish()

    def fail(self, why: str) -> None:
        """Stay in torch for good, with one warning."""
        self.report.background = why
        log.warning("%s goes on in torch: %s", self.report.name, why)
        self._finish()

    def _finish(self) -> None:
        with self._pending_lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call_back(callback)

    def _call_back(self, callback: Callable[[CompiledModule], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a callback of %s failed", self.report.name)


def identities(state: Mapping[str, torch.Tensor], known: Fingerprints) -> list[object]:
    """Return what changes when a weight is assigned or written to: the tensor, its memory and its values."""
    readable = [one for one in state.values() if is_readable(one)]
    places = [(name, id(one), _address(one), 0 if one.is_inference() else one._version) for name, one in state.items()]
    return [*places, *known.of(readable)]


def _address(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() if tensor.layout == torch.strided else 0


def _weights_of(program: torch.export.ExportedProgram) -> list[EngineWeight]:
    """Return the weights that an exported program uses, each with all of its names."""
    from trtcache.lowering.rewriting import group_tied  # which a hit does not need

    names = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    used = {names[node.name] for node in program.graph.nodes if node.name in names and node.users}
    groups = dict.fromkeys(group_tied(program.state_dict).values())
    found = enumerate(group for group in groups if not used.isdisjoint(group))
    return [whole_weight(index, group, program.state_dict[group[0]]) for index, group in found]
