"""Builds and loads through a backend, with foreign exceptions translated to ours.

A backend of another distribution may raise anything. What leaves these functions is a ``TrtcacheError``, so that
``on_build_failure`` applies and an entry that cannot be loaded is built again; or it is the machine's own error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.protocol import Artifact, Parallel
from trtcache.backends.registry import require_engine
from trtcache.config.backend_names import BUILT_IN
from trtcache.errors import BuildError, FixedWeightsError, IncompatibleEngineError, TrtcacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from trtcache.backends.protocol import Backend, Engine
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target

# What says nothing about an artifact: a full disk or memory, a GPU that fails.
_OF_THE_MACHINE = (OSError, MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)


def build_artifact(
    backend: Backend, program: LoweredProgram, settings: Settings, target: Target, folder: Path
) -> Artifact:
    """Build an artifact into ``folder``.

    Raises:
        BuildError: the builder failed, or raised an exception of its own.
    """
    with _translate_errors(lambda why: BuildError(backend.name, why)):
        artifact = backend.build(program, settings, target, folder)
    if not isinstance(artifact, Artifact):
        raise BuildError(backend.name, f"its build returned {artifact!r}, not an Artifact")
    if not artifact.engine.is_file():
        raise BuildError(backend.name, f"its build wrote no file {artifact.engine.name}, which its Artifact names")
    return artifact


def load_engine(
    backend: Backend,
    read: Callable[[str], bytes | memoryview],
    *,
    key: str,
    device: torch.device,
    constants: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
) -> Engine:
    """Return a live engine of a verified entry; ``read`` returns a member by name.

    Raises:
        IncompatibleEngineError: the entry cannot be loaded here, or the loader raised an exception of its own.
        BackendUnavailableError: the backend's engine lacks a method, or has one with a misspelt name.
    """
    with _translate_errors(lambda why: IncompatibleEngineError(key, why), _OF_THE_MACHINE):
        engine = backend.load_entry(read, device=device, constants=constants, weights=weights)
    if backend.name not in BUILT_IN:
        require_engine(backend, engine)
    return engine if backend.capabilities.refit else _fix_weights(backend.name, engine)


@contextmanager
def _translate_errors(
    error: Callable[[str], TrtcacheError], others: tuple[type[Exception], ...] = (MemoryError,)
) -> Iterator[None]:
    try:
        yield
    except TrtcacheError:
        raise
    except others:
        raise
    except Exception as foreign:
        raise error(f"{type(foreign).__name__}: {foreign}") from foreign


class _FixedEngine:
    """An engine of a backend without refit: it refuses other weights, and is otherwise the engine itself."""

    shares_weights: ClassVar[bool] = False

    def __init__(self, backend: str, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        self.run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] = engine.run

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Engine:  # noqa: ARG002  # as the protocol
        raise FixedWeightsError(backend=self._backend)

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


class _FixedParallelEngine(_FixedEngine):
    """One that accepts concurrent calls. ``isinstance`` finds only methods of a class from Python 3.12 on."""

    def parallel(self, calls: int) -> Engine:
        engine: Any = self._engine
        return _fix_weights(self._backend, engine.parallel(calls))


def _fix_weights(backend: str, engine: Engine) -> Engine:
    return (_FixedParallelEngine if isinstance(engine, Parallel) else _FixedEngine)(backend, engine)
