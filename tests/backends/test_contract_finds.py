"""The contract of backends finds the mistakes that a backend's author makes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

from trtcache.testing import BackendContract
from trtcache.testing.backends import Model
from trtcache.testing.interpreter import Interpretation, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Contract(BackendContract):
    """The contract, to be called by hand."""

    __test__ = False
    backend = "mistaken"


class WrongDtype(Interpretation):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [output.double() for output in super().run(inputs)]


class TooFewOutputs(Interpretation):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return super().run(inputs)[:1]


class IgnoredInput(Interpretation):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return super().run([torch.ones_like(x) for x in inputs])


class SharedBuffer(Interpretation):
    buffers: ClassVar[dict[tuple[int, ...], torch.Tensor]] = {}

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = super().run(inputs)
        flat = self.buffers.setdefault((), torch.empty(1000))
        kept = [flat[100 * place :][: x.numel()].view(x.shape) for place, x in enumerate(outputs)]
        return [buffer.copy_(output) for buffer, output in zip(kept, outputs, strict=True)]


class KeptInput(Interpretation):
    """Its first output is the input's memory."""

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = super().run(inputs)
        if inputs[0].shape == outputs[0].shape:
            inputs[0].copy_(outputs[0])
            return [inputs[0], *outputs[1:]]
        return outputs


class ReturnedWeight(Interpretation):
    """Its second output is a buffer that each call returns."""

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        first, second = super().run(inputs)
        self.second: torch.Tensor = getattr(self, "second", second)
        return [first, self.second]


class OneCallAtATime(Interpretation):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self.given = inputs
        time.sleep(0)
        return super().run(self.given)


class BusyRequest(Interpretation):
    lock = threading.Lock()

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not self.lock.acquire(blocking=False):
            raise RuntimeError("the request is busy")
        try:
            time.sleep(0)
            return super().run(inputs)
        finally:
            self.lock.release()


class StaleRefit(Interpretation):
    def refit(self, weights: Any) -> Any:
        return self


class RefitInPlace(Interpretation):
    def refit(self, weights: Any) -> Any:
        other = super().refit(weights)
        self.__dict__.update(other.__dict__)
        return self


class CopiedWeights(Interpretation):
    """It copies the weights, and promises to share them."""

    copied = False

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not self.copied:
            for name, buffer in self._graph.named_buffers():
                setattr(self._graph, name, buffer.clone())
            self.copied = True
        return super().run(inputs)


class NoNan(Interpretation):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [output.nan_to_num(0.0, float("inf"), float("-inf")) for output in super().run(inputs)]


class DroppedInput(Interpretation):
    """It pairs the inputs that are read with the first ones that are given."""

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        read = [node.op == "placeholder" and bool(node.users) for node in self._graph.graph.nodes][: len(inputs)]
        given = iter(inputs)
        return super().run([next(given) if used else x for used, x in zip(read, inputs, strict=True)])


MISTAKES = [
    (WrongDtype, "test_it_answers_as_eager_does_for_every_size"),
    (TooFewOutputs, "test_threads_share_an_engine"),
    (IgnoredInput, "test_it_answers_as_eager_does_for_every_size"),
    (SharedBuffer, "test_a_run_keeps_nothing_and_changes_nothing"),
    (KeptInput, "test_a_run_keeps_nothing_and_changes_nothing"),
    (ReturnedWeight, "test_an_output_can_be_changed"),
    (OneCallAtATime, "test_threads_share_an_engine"),
    (BusyRequest, "test_threads_share_an_engine"),
    (StaleRefit, "test_a_refit_leaves_the_first_engine_as_it_is"),
    (RefitInPlace, "test_a_refit_leaves_the_first_engine_as_it_is"),
    (CopiedWeights, "test_weights_are_shared_as_promised"),
    (NoNan, "test_infinity_and_nan_are_those_of_eager"),
    (NoNan, "test_small_sizes_are_right_or_refused"),
    (DroppedInput, "test_an_input_that_nothing_reads_is_skipped"),
]


@pytest.mark.parametrize(("engine", "test"), [(Interpretation, test) for test in sorted({t for _, t in MISTAKES})])
def test_the_interpreter_passes(
    engine: type[Interpretation], test: str, offer: Callable[..., str], tmp_path: Path
) -> None:
    """Without a mistake, each of the tests below passes."""
    _run(engine, test, offer, tmp_path)


@pytest.mark.parametrize(("engine", "test"), MISTAKES, ids=[f"{engine.__name__}-{test}" for engine, test in MISTAKES])
def test_a_mistake_is_found(engine: type[Interpretation], test: str, offer: Callable[..., str], tmp_path: Path) -> None:
    """The test of the contract fails."""
    with pytest.raises((AssertionError, RuntimeError)):
        _run(engine, test, offer, tmp_path)


def _run(engine: type[Interpretation], test: str, offer: Callable[..., str], tmp_path: Path) -> None:
    class Mistaken(Interpreter):
        name: ClassVar[str] = "mistaken"

        def load(self, *args: Any, **kwargs: Any) -> Interpretation:
            loaded = super().load(*args, **kwargs)
            loaded.__class__ = engine
            return loaded

    offer(Mistaken)
    makes: dict[str, Callable[[], Any]] = {
        "cache": lambda: tmp_path,
        "module": lambda: Contract.compile(Model(1.0), tmp_path),
        "floats": lambda: Contract.compile_floats(tmp_path),
    }
    method = getattr(Contract(), test)
    wanted = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    method(**{name: makes[name]() for name in wanted})
