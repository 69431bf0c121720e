"""The states of generators of random numbers that Python code draws from: torch's, Python's and NumPy's."""

from __future__ import annotations

import importlib
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from trtcache.lowering.python_objects import is_kind
from trtcache.lowering.threads import is_alone


def random_states() -> list[object]:
    """Return the states of the generators that a process has: torch's, Python's and NumPy's."""
    states: list[object] = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    if "numpy" in sys.modules:
        numpy: Any = importlib.import_module("numpy.random")  # the first torch.export of a process imports it
        states += [part.tobytes() if hasattr(part, "tobytes") else part for part in numpy.get_state()]
    return states


def keep_random_states() -> Callable[[], None]:
    """Return a function that sets the generators of ``random_states`` back to their present states.

    It does nothing if other threads run, which may have drawn from them.
    """
    torch_state, python_state, started_alone = torch.get_rng_state(), random.getstate(), is_alone()
    numpy: Any = sys.modules.get("numpy.random")
    numpy_state = None if numpy is None else numpy.get_state()

    def restore() -> None:
        if started_alone and is_alone():
            torch.set_rng_state(torch_state)
            random.setstate(python_state)
            if numpy is not None:
                numpy.set_state(numpy_state)

    return restore


def generator_state(value: object) -> Any:
    """Return the state of a generator of Python's or NumPy's; None for other values."""
    if is_kind(value, random.Random):
        return random.Random.getstate(value)  # type: ignore[arg-type]  # not that of a subclass
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None and is_kind(value, numpy.Generator):
        return numpy.Generator.bit_generator.__get__(value).state
    if numpy is not None and is_kind(value, numpy.RandomState):
        return numpy.RandomState.get_state(value, legacy=False)
    return None


def have_drawn(generators: Iterable[tuple[Any, Any]]) -> bool:
    """Return whether one of several generators has another state than that which is beside it."""
    return any(pickle.dumps(generator_state(one)) != pickle.dumps(state) for one, state in generators)


def restore_generators(generators: Iterable[tuple[Any, Any]]) -> None:
    """Set generators to the states beside them."""
    for one, state in generators:
        if is_kind(one, random.Random):
            random.Random.setstate(one, state)
        elif hasattr(one, "bit_generator"):
            one.bit_generator.state = state
        else:
            one.set_state(state)
