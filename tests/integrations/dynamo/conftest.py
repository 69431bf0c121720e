"""What tests of ``torch.compile`` have: a Dynamo that knows nothing, and engines that are built at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest
import torch

from trtcache.integrations import torch_compile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class CompileModel(Protocol):
    """Gives a model to ``torch.compile``."""

    def __call__(self, model: Callable[..., Any], *, dynamic: bool | None = None, **options: object) -> Any:
        """Return the compiled model; ``options`` are added to a cache of the test's own and a backend that is quick."""
        ...


@pytest.fixture
def compile_model(interpreter: str, tmp_path: Path) -> Iterator[CompileModel]:
    """Compile by our backend, with a Dynamo and reports that are empty."""
    torch._dynamo.reset()
    torch_compile.clear_reports()

    def compiled(model: Callable[..., Any], *, dynamic: bool | None = None, **options: object) -> Any:
        given = {"backend": interpreter, "cache": tmp_path / "cache", **options}
        return torch.compile(model, backend=torch_compile.backend, dynamic=dynamic, options=given)

    yield compiled
    torch._dynamo.reset()


class Made(Protocol):
    """Says what was done for graphs."""

    def __call__(self) -> list[tuple[int, int]]:
        """Return, for each graph so far, how many engines it has and how many sets of weights."""
        ...


@pytest.fixture
def made() -> Made:
    """Say what was done for each graph, none of which may have been left to eager torch."""

    def counts() -> list[tuple[int, int]]:
        found = torch_compile.reports()
        assert not [why for one in found for why in one.eager]
        return [(len(one.engines), one.weight_sets) for one in found]

    return counts
