"""What every backend and engine must do; it runs on AOTInductor and on the tests' interpreter."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.comparing import difference
from tests.models import Affine
from trtcache.backends import registry
from trtcache.backends.protocol import ENGINE
from trtcache.errors import IncompatibleEngineError
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.backends.protocol import Backend
    from trtcache.lowering import LoweredProgram

CPU = torch.device("cpu")
X = torch.randn(3, 4)


@pytest.fixture(params=["interpreter", pytest.param("aot_inductor", marks=pytest.mark.slow)], scope="module")
def backend(request: pytest.FixtureRequest, interpreter: str) -> Backend:
    """A backend under contract."""
    return registry.find(request.param, "cpu")


@pytest.fixture(scope="module")
def program(backend: Backend) -> LoweredProgram:
    """A program of three weights."""
    return trtcache.lower(Affine(), (X,), backend=backend.name)


@pytest.fixture(scope="module")
def artifact(backend: Backend, engines: Path) -> bytes:
    """Its artifact, from the session's cache."""
    compiled = trtcache.compile(Affine(), (X,), backend=backend.name, cache=engines)
    entry = trtcache.Cache(engines).get(compiled.report.partitions[0].key)
    assert entry is not None
    return bytes(entry.read(ENGINE))


@pytest.fixture
def weights(program: LoweredProgram) -> Callable[[float], dict[str, torch.Tensor]]:
    """Make weights of one value for the program."""

    def make(value: float) -> dict[str, torch.Tensor]:
        state = Affine(value).state_dict()
        return fit(program.interface.weights, state, known=frozenset(state), device=CPU)

    return make


def test_facts_are_plain_values_and_the_same_each_time(backend: Backend) -> None:
    """Toolchain, ambient settings and target have a canonical form that two questions give alike."""
    facts = [{**backend.versions("cpu"), **backend.ambient(), **backend.target(None, CPU).document()} for _ in "12"]
    keys = {trtcache.CacheKey.of("test", one).digest for one in facts}
    assert len(keys) == 1
    assert "cpu" in backend.capabilities.devices
    assert backend.unavailable("cpu") is None
    assert "abacus" in str(backend.unavailable("abacus"))


def test_a_refit_leaves_the_first_engine_as_it_is(
    backend: Backend, artifact: bytes, weights: Callable[[float], dict[str, torch.Tensor]]
) -> None:
    """Two engines of one artifact have each their own weights."""
    first = backend.load(artifact, device=CPU, constants={}, weights=weights(1.0))
    second = first.refit(weights(2.0))
    assert difference(list(Affine(2.0)(X)), second.run([X])) is None
    assert difference(list(Affine(1.0)(X)), first.run([X])) is None


def test_an_artifact_loads_from_any_bytes_and_twice(
    backend: Backend, artifact: bytes, weights: Callable[[float], dict[str, torch.Tensor]]
) -> None:
    """Loading reads a view as well as bytes, and a second load is an engine of its own."""
    for content in (artifact, memoryview(artifact)):
        engine = backend.load(content, device=CPU, constants={}, weights=weights(3.0))
        assert difference(list(Affine(3.0)(X)), engine.run([X])) is None


def test_an_engine_with_a_weight_unset_is_not_handed_out(
    backend: Backend, artifact: bytes, weights: Callable[[float], dict[str, torch.Tensor]]
) -> None:
    """A missing weight is an error at load that names it."""
    few = weights(1.0)
    del few["w1"]
    with pytest.raises(IncompatibleEngineError, match="w1"):
        backend.load(artifact, device=CPU, constants={}, weights=few)


def test_junk_is_not_loaded_and_the_error_can_be_pickled(backend: Backend) -> None:
    """Bytes that are no artifact of this backend are an IncompatibleEngineError, which crosses processes."""
    with pytest.raises(IncompatibleEngineError) as raised:
        backend.load(b"junk", device=CPU, constants={}, weights={})
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301  # our own bytes


def test_threads_share_an_engine(
    backend: Backend, artifact: bytes, weights: Callable[[float], dict[str, torch.Tensor]]
) -> None:
    """Calls of one engine from several threads at once are each right."""
    engine = backend.load(artifact, device=CPU, constants={}, weights=weights(2.0))
    wrong: list[object] = []

    def call(number: int) -> None:
        x = torch.full((3, 4), float(number))
        expected = list(Affine(2.0)(x))
        wrong.extend(found for _ in range(50) if difference(expected, found := engine.run([x])))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
