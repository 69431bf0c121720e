"""What a process does while another builds what it wants: it waits, builds too, or does without."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.holding import holder
from tests.partition.parts import Twice
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.units import RANKS_WAIT_S, ContentionPolicy
from trtcache.errors import BuildCancelledError, BusyError, SettingsError
from trtcache.progress import watching
from trtcache.store.catalog import counters

if TYPE_CHECKING:
    from trtcache.progress import Step

PARTS = {"n": 1}
PROJECT = Path(__file__).parents[2]
X = torch.randn(3, 8)


def cache_at(root: Path, **more: object) -> Cache:
    """Return a cache that no variable of the environment has a say in."""
    return Cache(config=Config(root=root), **more)  # type: ignore[arg-type]  # each test's own


def digest(cache: Cache) -> str:
    """Return the digest of the key of PARTS."""
    return cache.key(PARTS, kind="test").digest


def counted(cache: Cache, event: str) -> dict[str, int]:
    """Return how often something was counted, by reason."""
    assert cache.store is not None
    return {key[2]: tally.count for key, tally in counters(cache.store).items() if key[1] == event}


def test_a_waiter_says_whom_it_waits_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and to who watches builds, and after its timeout it builds; wait and seconds are counted."""
    caplog.set_level(logging.INFO)
    cache = cache_at(tmp_path, busy_timeout_s=0.3)
    steps: list[Step] = []
    with holder(tmp_path, digest(cache)) as process, watching(steps.append):
        assert cache.get_or_build(PARTS, lambda: b"mine", kind="test").outcome == "built"
    who = f"{os.uname().nodename}:{process.pid}"
    assert f"waiting for {who}, " in caplog.text
    assert f" s (test {digest(cache)[:16]}, by holding.py); after 0 s it builds for itself" in caplog.text
    assert f"although {who} builds it" in caplog.text
    assert steps[0].phase.startswith(f"waiting for {who}, ")
    assert steps[0].steps == 0
    assert counted(cache, "wait") == {"timeout": 1}
    assert sum(tally.sum_s for key, tally in counters(cache.store).items() if key[1] == "wait") > 0


def test_who_watches_may_end_the_wait(tmp_path: Path) -> None:
    """False calls the build off, as for one of our own."""
    cache = cache_at(tmp_path)
    with (
        holder(tmp_path, digest(cache)) as process,
        watching(lambda _: False),
        pytest.raises(BuildCancelledError, match=f"while it waited for .*:{process.pid}; nothing was stored"),
    ):
        cache.get_or_build(PARTS, lambda: b"mine", kind="test")


def test_a_waiter_takes_over_from_one_that_dies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It builds, and the takeover and the wait are counted."""
    cache = cache_at(tmp_path)
    with holder(tmp_path, digest(cache)) as process:
        threading.Timer(0.3, process.kill).start()
        assert cache.get_or_build(PARTS, lambda: b"mine", kind="test").outcome == "built"
    assert f":{process.pid} died while it built test" in caplog.text
    assert (counted(cache, "takeover"), counted(cache, "wait")) == ({"": 1}, {"": 1})


def test_a_failed_build_is_not_a_takeover(tmp_path: Path) -> None:
    """It releases the lock itself."""
    cache = cache_at(tmp_path)
    with holder(tmp_path, digest(cache)) as process:
        process.communicate()
    assert cache.get_or_build(PARTS, lambda: b"mine", kind="test").outcome == "built"
    assert counted(cache, "takeover") == {}


def test_build_builds_at_once_and_stores(tmp_path: Path) -> None:
    """With no wait, while the other still builds."""
    cache = cache_at(tmp_path, on_busy="build")
    with holder(tmp_path, digest(cache)):
        entry = cache.get_or_build(PARTS, lambda: b"mine", kind="test")
        assert (entry.outcome, entry.reason) == ("built", "absent")
        assert entry.path is not None
    assert counted(cache, "wait") == {}
    assert counted(cache, "put") == {"": 1}


def test_build_stores_nothing_if_the_other_was_quicker(tmp_path: Path) -> None:
    """What is there stays, and is what the caller gets."""
    cache = cache_at(tmp_path, on_busy="build")

    def slow() -> bytes:
        assert cache.store is not None
        cache.store.put(cache.key(PARTS, kind="test"), {"artifact": b"theirs"}, kind="test")
        return b"mine"

    with holder(tmp_path, digest(cache)):
        entry = cache.get_or_build(PARTS, slow, kind="test")
    assert (entry.outcome, entry.read()) == ("built", b"theirs")
    assert counted(cache, "put") == {}


def test_a_rejected_entry_is_not_what_a_build_returns(tmp_path: Path) -> None:
    """Although it is there, since another process has stored it."""
    cache = cache_at(tmp_path, on_busy="build")
    entry = cache.get_or_build(PARTS, lambda: b"rejected", kind="test")
    cache._rejected[entry.key.digest] = "load-failed"
    with holder(tmp_path, digest(cache)):
        entry = cache.get_or_build(PARTS, lambda: b"mine", kind="test")
    assert (entry.outcome, entry.read()) == ("built", b"mine")


def test_eager_names_who_builds(tmp_path: Path) -> None:
    """The error is one of the store's, and the miss is counted as busy."""
    cache = cache_at(tmp_path, on_busy="eager")
    with holder(tmp_path, digest(cache)) as process, pytest.raises(BusyError) as caught:
        cache.get_or_build(PARTS, lambda: b"mine", kind="test")
    assert caught.value.builder == f"{os.uname().nodename}:{process.pid}"
    assert f"{process.pid} is building test" in str(caught.value)
    assert counted(cache, "miss") == {"busy": 1}
    assert cache.get_or_build(PARTS, lambda: b"mine", kind="test").outcome == "built"


def test_compile_runs_in_torch_while_another_builds(
    interpreter: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The module answers, the report and the log say so, and the next call has the engine."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    cache = cache_at(tmp_path, on_busy="eager")
    key = trtcache.key(model, (X,), backend=interpreter)
    with holder(tmp_path, key.digest) as process:
        module = trtcache.compile(model, (X,), backend=interpreter, cache=cache)
    torch.testing.assert_close(module(X), model(X))
    (one,) = module.report.partitions
    assert (one.key, one.outcome, one.reason, one.path) == (key, "eager", "busy", None)
    assert {left.why for left in module.report.left} == {f"{os.uname().nodename}:{process.pid} is building its engine"}
    assert "runs in torch in this process, without an engine" in caplog.text
    assert "eager (busy)" in str(module.report)
    (after,) = trtcache.compile(model, (X,), backend=interpreter, cache=cache).report.partitions
    assert (after.outcome, after.key) == ("built", key)


def test_of_several_parts_only_the_busy_one_is_in_torch(interpreter: str, tmp_path: Path) -> None:
    """The others have their engines."""
    model, cache = Twice(), cache_at(tmp_path, on_busy="eager")
    first, second = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path / "other").report.partitions
    assert first.key is not None
    with holder(tmp_path, first.key.digest):
        module = trtcache.compile(model, (X,), backend=interpreter, cache=cache)
    found = {one.key.digest: one.outcome for one in module.report.partitions if one.key}
    assert second.key is not None
    assert found == {first.key.digest: "eager", second.key.digest: "built"}
    torch.testing.assert_close(module(X), model(X))


def test_engines_and_nothing_else_is_an_error_while_another_builds(interpreter: str, tmp_path: Path) -> None:
    """Who requires full compilation gets no module in torch."""
    model, settings = torch.nn.Linear(8, 8), {"require_full_compilation": True}
    cache = cache_at(tmp_path, on_busy="eager")
    key = trtcache.key(model, (X,), backend=interpreter, settings=settings)
    with holder(tmp_path, key.digest), pytest.raises(BusyError):
        trtcache.compile(model, (X,), backend=interpreter, cache=cache, settings=settings)


RANK = """
import logging, os, sys, time
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from trtcache import Cache
def build():
    time.sleep(float(sys.argv[2]))
    return b"engine"
print("outcome", Cache(sys.argv[1]).get_or_build({"n": 1}, build, kind="test").outcome)
"""


def ranks(root: Path, build_s: float, **more: str) -> list[str]:
    """Run four ranks as torchrun starts them, and return their outputs."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("TRTCACHE_", "COVERAGE_"))}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(root), str(build_s)],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4", **more},
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    return [process.communicate()[0] for process in started]


def test_of_the_ranks_of_a_job_one_builds(tmp_path: Path) -> None:
    """The others wait for it, and say for how long at most."""
    said = ranks(tmp_path, 1.0)
    assert sorted(text.rsplit("outcome ", 1)[1] for text in said) == ["built\n", "hit\n", "hit\n", "hit\n"]
    assert any(f"after {RANKS_WAIT_S:.0f} s rank" in text and "of 4 builds for itself" in text for text in said)


def test_ranks_that_waited_long_enough_build(tmp_path: Path) -> None:
    """For themselves, while the lock is held; one that comes when another has stored its engine has that."""
    cache = Cache(config=Config(root=tmp_path))
    with holder(tmp_path, digest(cache)):
        said = ranks(tmp_path, 0.0, TRTCACHE_BUSY_TIMEOUT="0.5")
    assert any(text.endswith("outcome built\n") for text in said)
    assert all("although" in text or text.endswith("outcome hit\n") for text in said)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ContentionPolicy()),
        ({"TRTCACHE_ON_BUSY": "eager", "TRTCACHE_BUSY_TIMEOUT": "30"}, ContentionPolicy("eager", 30.0)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, ContentionPolicy("wait", None, "rank 1 of 4")),
        ({"RANK": "1", "WORLD_SIZE": "4", "TRTCACHE_BUSY_TIMEOUT": "5"}, ContentionPolicy("wait", 5.0, "rank 1 of 4")),
        ({"RANK": "1", "WORLD_SIZE": "4", "TRTCACHE_ON_BUSY": "build"}, ContentionPolicy("build", None, "rank 1 of 4")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ContentionPolicy()),
        ({"RANK": "x", "WORLD_SIZE": "4"}, ContentionPolicy()),
    ],
    ids=["nothing", "both", "rank", "rank-timeout", "rank-build", "alone", "odd"],
)
def test_the_environment_says_what_to_do(environ: dict[str, str], expected: ContentionPolicy) -> None:
    """Ranks of a job have a limit of their own, below NCCL's of ten minutes."""
    assert ContentionPolicy.of(environ) == expected


def test_a_rank_waits_below_nccls_limit() -> None:
    """Only if it waits at all, whether the environment or an argument says so."""
    rank = ContentionPolicy.of({"RANK": "1", "WORLD_SIZE": "4"})
    assert rank.patience_s == RANKS_WAIT_S < 600
    assert [rank.override(policy, None).patience_s for policy in ("eager", "build", "wait")] == [0, 0, RANKS_WAIT_S]
    eager = ContentionPolicy.of({"RANK": "1", "WORLD_SIZE": "4", "TRTCACHE_ON_BUSY": "eager"})
    assert eager.override("wait", None).patience_s == RANKS_WAIT_S
    assert rank.override("eager", 5.0).patience_s == 5.0


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TRTCACHE_ON_BUSY": "bild"}, "TRTCACHE_ON_BUSY.*did you mean 'build'"),
        ({"TRTCACHE_BUSY_TIMEOUT": "long"}, "TRTCACHE_BUSY_TIMEOUT: 'long' is not a number of seconds, 0 or more"),
        ({"TRTCACHE_BUSY_TIMEOUT": "-1"}, "is not a number of seconds"),
        ({"TRTCACHE_BUSY_TIMEOUT": "inf"}, "is not a number of seconds"),
    ],
    ids=["policy", "text", "negative", "endless"],
)
def test_impossible_values_are_refused(environ: dict[str, str], message: str) -> None:
    """By their name."""
    with pytest.raises(SettingsError, match=message):
        ContentionPolicy.of(environ)


def test_arguments_come_before_the_environment(tmp_path: Path) -> None:
    """Each for itself, and impossible ones are refused."""
    config = Config(root=tmp_path, busy=ContentionPolicy("eager", 5.0))
    assert Cache(config=config, on_busy="build").busy == ContentionPolicy("build", 5.0)
    assert Cache(config=config, busy_timeout_s=1).busy == ContentionPolicy("eager", 1.0)
    with pytest.raises(SettingsError, match="on_busy"):
        Cache(config=config, on_busy="never")
    with pytest.raises(SettingsError, match="busy_timeout_s"):
        Cache(config=config, busy_timeout_s=-1.0)
