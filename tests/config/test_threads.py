"""Thread counts: their origin, precedence and scope."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from trtcache.config import threads as thread_counts
from trtcache.config.threads import Threads, effective_threads, origin, run_with
from trtcache.errors import SettingsError
from trtcache.settings import AT_RUN_TIME, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_numbers_hold_in_the_block_and_no_longer() -> None:
    """Blocks nest, and an omitted number is inherited from the enclosing one."""
    before = torch.get_num_threads()
    with trtcache.threads(intra=3, inter=5):
        assert (torch.get_num_threads(), effective_threads().intra_from) == (3, "trtcache.threads")
        with suppress(ValueError), trtcache.threads(intra=2):
            assert (torch.get_num_threads(), effective_threads().inter) == (2, 5)
            raise ValueError("inside")
        with trtcache.threads(inter=1):
            assert (torch.get_num_threads(), effective_threads().inter) == (3, 1)
    assert torch.get_num_threads() == before
    assert thread_counts.current() == Threads()


@pytest.mark.parametrize(
    ("number", "environ", "mkl", "said"),
    [
        (4, {}, True, "cores"),
        (2, {}, True, "cores"),  # two hardware threads to a core
        (3, {}, True, "torch.set_num_threads"),
        (1, {"OMP_NUM_THREADS": "1"}, True, "OMP_NUM_THREADS"),
        (1, {"OMP_NUM_THREADS": "1,2"}, False, "OMP_NUM_THREADS"),
        (1, {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "1"}, True, "MKL_NUM_THREADS"),
        (3, {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "1"}, False, "OMP_NUM_THREADS"),
        (4, {"OMP_NUM_THREADS": "64"}, True, "OMP_NUM_THREADS"),  # MKL takes no more than the cores
        (64, {"OMP_NUM_THREADS": "64"}, False, "OMP_NUM_THREADS"),
        (5, {"OMP_NUM_THREADS": "1"}, True, "torch.set_num_threads"),
        (4, {"OMP_NUM_THREADS": "many"}, True, "cores"),
    ],
)
def test_the_origin_of_torchs_number_is_reported(number: int, environ: dict[str, str], mkl: bool, said: str) -> None:
    """A call of set_num_threads overrides MKL's variable, that overrides OpenMP's, and that the cores."""
    assert origin(number, environ, cores=4, mkl=mkl) == said


def test_settings_override_torch_and_not_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the effective counts, and in a call."""
    torch.set_num_threads(2)
    given = Threads(intra=3, inter=4)
    assert (effective_threads(given).intra_from, effective_threads(given).inter_from) == (
        "settings.threads",
        "settings.threads",
    )
    assert run_with(3, lambda _: torch.get_num_threads(), None) == 3
    assert torch.get_num_threads() == 2
    with trtcache.threads(intra=1):
        assert effective_threads(given).intra == 1
        assert run_with(3, lambda _: torch.get_num_threads(), None) == 1


def test_a_module_runs_with_the_number_of_its_settings(interpreter: str) -> None:
    """The caller's number is restored."""
    seen: list[int] = []
    module = trtcache.compile(
        torch.nn.Linear(2, 2), (torch.ones(1, 2),), backend=interpreter, settings={"threads": {"intra": 3}}
    )
    run = module._swap.run
    module._swap.run = lambda inputs: [seen.append(torch.get_num_threads()), *run(inputs)][1:]  # type: ignore[func-returns-value, method-assign]
    torch.set_num_threads(2)
    module(torch.ones(1, 2))
    assert (seen, torch.get_num_threads()) == ([3], 2)


def test_numbers_of_threads_are_in_no_key() -> None:
    """They affect how an engine runs or is built, and its code supports any number."""
    given = {"threads": {"intra": 1}, "build_processes": 2, "on_miss": "background", "detach": True}
    assert set(given) == AT_RUN_TIME
    assert Settings.of(given).document() == Settings().document()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"intra": 0}, r"threads\['intra'\]: expected a positive integer, got 0"),
        ({"inter": True}, "expected a positive integer, got True"),
        ({"intre": 1}, "did you mean 'int"),
        (4, "expected Threads or a mapping of its fields, got 4"),
    ],
)
def test_impossible_numbers_are_one_clear_error(given: object, message: str) -> None:
    """With the setting's name."""
    with pytest.raises(SettingsError, match=message):
        Settings.of({"threads": given})
