"""Builds in a worker process: one for all that need an engine, and nothing that is left of it."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.background.conftest import assert_nothing_left, until, workers
from tests.holding import holder
from tests.store.mounts import mounted
from trtcache.cache import Cache
from trtcache.compiler.background import changes_weights
from trtcache.config.environment import Config
from trtcache.errors import BuildForbiddenError, RefitError, SettingsError
from trtcache.integrations import torch_compile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import StartPython

X = torch.randn(3, 8)


@dataclass
class Pair:
    """Arguments and results of a class that workers do not know."""

    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="tests.background.Pair")


class Swap(nn.Module):
    """Swaps a pair."""

    def forward(self, pair: Pair) -> Pair:
        """Swap, and scale both."""
        return Pair(pair.second * 2, pair.first + 1)


class Both(nn.Module):
    """Returns a pair."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Pair:
        """Scale the first, and shift the second."""
        return Pair(x * 2, y + 1)


class Counter(nn.Module):
    """Calls change its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count in a view of the buffer, and add the count."""
        self.count[2:].view(3, 2).add_(1)
        return x + self.count


def model(seed: int = 0) -> nn.Module:
    """Return two layers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


def answer(module: nn.Module) -> torch.Tensor:
    """Return what a module computes."""
    with torch.no_grad():
        found: torch.Tensor = module(X)
        return found


def test_an_engine_takes_over(
    portable: str,
    tmp_path: Path,
    temporary: Path,
    builds: Callable[[], list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is built by a niced process of one thread, under the key of every other build; refits before it count."""
    monkeypatch.setenv("PORTABLE_BUILD", "1")
    live, other, called = model(), model(1), []
    module = trtcache.compile(live, (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    module.add_done_callback(called.append)
    assert not module.ready
    assert "its engine is being built" in module.report.why
    assert module.report.outcome == "eager"
    assert "for cpu, " in str(module.report)
    torch.testing.assert_close(module(X), answer(live))
    assert module.refit(other).changed == ("0.weight", "0.bias", "2.weight", "2.bias")
    torch.testing.assert_close(module(X), answer(other))
    assert module.wait(90)
    torch.testing.assert_close(module(X), answer(other))
    torch.testing.assert_close(answer(live), live(X).detach())  # the model itself has its own weights
    assert called == [module]
    (part,) = module.report.partitions
    assert part.key == trtcache.key(live, (X,), backend=portable)
    assert (part.outcome, part.reason, module.report.route) == ("built", "absent", "alias")
    assert module.report.saved_s == 0.0
    assert module.report.background.startswith("built by a worker in ")
    ((pid, threads, niceness),) = builds()
    assert (pid != os.getpid(), threads, niceness) == (True, 1, os.nice(0) + 10)
    assert_nothing_left(temporary)
    again = trtcache.compile(live, (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    assert (again.ready, again.report.background, len(builds())) == (True, "", 1)
    assert trtcache.Cache(tmp_path / "cache").stats().hits == 1  # of the second compile: the first has built it


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.usefixtures("quick_grandchildren")
def test_calls_beside_a_build(
    portable: str,
    tmp_path: Path,
    temporary: Path,
    builds: Callable[[], list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
    dynamic: bool,
) -> None:
    """From the return of ``compile`` until the engine has taken over, calls of four threads have right answers.

    With dynamic sizes the program is lowered in this process meanwhile: no call may see its fake tensors.
    """
    monkeypatch.setenv("PORTABLE_BUILD", "2")
    live = model()
    expected, shapes = answer(live), ({0: torch.export.Dim("rows", min=2)},) if dynamic else None
    options: dict[str, Any] = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    module = trtcache.compile(live, (X,), dynamic_shapes=shapes, **options)
    wrong: list[str] = []
    counts = [[0, 0] for _ in range(4)]

    def call(count: list[int]) -> None:
        after = 20
        while after:
            is_ready = module.ready
            try:
                found = module(X)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is wrong
                wrong.append(repr(error))
                return
            if type(found) is not torch.Tensor or not torch.allclose(found, expected, atol=1e-5):
                wrong.append(repr(found))
            count[is_ready] += 1
            after -= is_ready or module._done.is_set()
            time.sleep(0.001)  # or the calls alone would take the processor

    threads = [threading.Thread(target=call, args=(count,)) for count in counts]
    for thread in threads:
        thread.start()
    assert module.wait(120), module.report.why
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(builds()) == 1
    assert all(before and after for before, after in counts)
    assert_nothing_left(temporary)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.usefixtures("quick_grandchildren")
def test_classes_that_only_this_process_has_registered(
    portable: str, tmp_path: Path, temporary: Path, dynamic: bool
) -> None:
    """A worker builds under the key of the process, which alone has the classes of arguments and results."""
    pair, rows = Pair(torch.randn(3, 4), torch.randn(3, 4)), torch.export.Dim("rows", min=2)
    shapes = ([{0: rows}, {0: rows}],) if dynamic else None
    options: dict[str, Any] = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    module = trtcache.compile(Swap(), (pair,), dynamic_shapes=shapes, **options)
    assert module.wait(90), module.report.why
    found = module(pair)
    assert type(found) is Pair
    torch.testing.assert_close((found.first, found.second), (pair.second * 2, pair.first + 1))
    assert_nothing_left(temporary)


@pytest.mark.usefixtures("quick_grandchildren")
def test_the_file_of_a_program_with_a_class(portable: str, tmp_path: Path) -> None:
    """The worker gets the program itself, since it cannot read such a file."""
    torch.export.save(torch.export.export(Both(), (X, X)), tmp_path / "program.pt2")
    options: dict[str, Any] = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    module = trtcache.compile(tmp_path / "program.pt2", **options)
    assert module.wait(90), module.report.why
    found = module(X, X)
    assert type(found) is Pair
    torch.testing.assert_close(found.second, X + 1)


@pytest.mark.usefixtures("quick_grandchildren")
def test_it_is_a_submodule_before_and_after(portable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module around it lists the model's weights and loads others, in torch and with the engine."""
    monkeypatch.setenv("PORTABLE_BUILD", "1")
    inner = trtcache.compile(model(), (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    outer, hooked = nn.Sequential(inner, nn.Linear(2, 2)).eval(), []
    inner.register_forward_hook(lambda *_: hooked.append(inner.ready))
    expected = nn.Sequential(model(1), nn.Linear(2, 2)).eval()
    assert list(outer.state_dict()) == list(expected.state_dict())
    torch.testing.assert_close(inner.state_dict(), model().state_dict())
    assert not hasattr(inner, "interface")
    with pytest.raises(RefitError, match="float64"):
        outer.double()
    outer.load_state_dict(expected.state_dict())
    torch.testing.assert_close(answer(outer), answer(expected))
    assert hooked == [False]
    assert inner.wait(90)
    torch.testing.assert_close(answer(outer), answer(expected))
    torch.testing.assert_close(outer.state_dict(), expected.state_dict())
    assert hooked == [False, True]
    assert dict(outer.named_parameters()).keys() == dict(expected.named_parameters()).keys()
    outer.load_state_dict({**expected.state_dict(), "0.0.bias": torch.zeros(8)})
    expected[0][0].bias.data.zero_()
    torch.testing.assert_close(answer(outer), answer(expected))


@pytest.mark.parametrize("name", ["0.weight", "2.weight"])
@pytest.mark.usefixtures("quick_grandchildren")
def test_one_name_of_a_tied_weight_is_enough(
    portable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As of an ``nn.Module``: in torch and with the engine."""
    monkeypatch.setenv("PORTABLE_BUILD", "1")
    live, expected = (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval() for _ in range(2))
    live[2].weight, expected[2].weight = live[0].weight, expected[0].weight
    expected.load_state_dict(live.state_dict())
    module = trtcache.compile(live, (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    for ready in (False, True):
        weight = {name: torch.randn(8, 8)}
        module.load_state_dict(weight, strict=False)
        expected.load_state_dict(weight, strict=False)
        torch.testing.assert_close(module(X), answer(expected))
        assert (module.ready, module.wait(90)) == (ready, True)


@pytest.mark.usefixtures("quick_grandchildren")
def test_programs_with_dynamic_sizes_and_their_files(portable: str, tmp_path: Path, temporary: Path) -> None:
    """An exported program, and the file of one, run in torch as the program does."""
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(model(), (X,), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "program.pt2")
    for given in (program, tmp_path / "program.pt2"):
        module = trtcache.compile(
            given, backend=portable, cache=tmp_path / Path(str(given)[:9]).name, on_miss="background"
        )
        torch.testing.assert_close(module(X), answer(model()))
        assert not module.ready
        assert module.wait(90), module.report.why
        torch.testing.assert_close(module(X), answer(model()))
    assert_nothing_left(temporary)


@pytest.mark.parametrize(("how", "why"), [("fail", "the compiler found an error"), ("kill", "killed by signal 9")])
def test_a_build_that_fails(
    portable: str,
    tmp_path: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    why: str,
) -> None:
    """It is one warning with the reason, which is in the report too; calls and refits go on in torch."""
    monkeypatch.setenv("PORTABLE_BUILD", how)
    live = model()
    module = trtcache.compile(live, (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    assert not module.wait(90)
    assert why in module.report.why
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        f"Sequential goes on in torch: {module.report.background}"
    ]
    module.refit(model(1))
    torch.testing.assert_close(module(X), answer(model(1)))
    assert_nothing_left(temporary)


@pytest.mark.parametrize("victim", ["builder", "supervisor"])
def test_a_worker_that_is_killed(
    portable: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """Neither process is left, and the next compilation has a worker of its own."""
    monkeypatch.setenv("PORTABLE_BUILD", "60")
    module = trtcache.compile(model(), (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    word = " build " if victim == "builder" else " supervise "
    until(lambda: list(temporary.glob("*/trtcache-build-*/intermediate")))
    (pid,) = {int(found.split()[0]) for found in workers(temporary) if word in found}
    os.kill(pid, signal.SIGKILL)
    assert not module.wait(30)
    assert "killed" in module.report.why
    assert_nothing_left(temporary)
    monkeypatch.setenv("PORTABLE_BUILD", "")
    again = trtcache.compile(model(), (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    assert again.wait(90)


PROGRAM = """
    import os, sys, time
    import torch
    from torch import nn
    import trtcache
    sys.path.append({site!r})
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    settings = {{"on_miss": "background", "detach": {detach}}}
    module = trtcache.compile(model, (torch.randn(3, 8),), backend="portable", cache={cache!r}, settings=settings)
    {then}
"""


BUILDING = "while not os.path.exists(os.environ['PORTABLE_LOG']): time.sleep(0.05)"
"""Wait until the worker builds."""


def program(interpreter_site: str, cache: Path, *, then: str, detach: bool = False) -> str:
    """Return the code of a process that compiles in the background."""
    return textwrap.dedent(PROGRAM).format(site=interpreter_site, cache=str(cache), detach=detach, then=then)


@pytest.fixture
def site(portable: str) -> str:
    """Return the folder with the entry points of the tests' backends."""
    import sys

    assert portable
    return next(path for path in sys.path if (Path(path) / "interpreter-1.0.dist-info").exists())


@pytest.mark.parametrize("how", ["exits", "exits at once", "is killed"])
def test_a_process_that_ends_takes_its_worker_along(
    site: str,
    tmp_path: Path,
    temporary: Path,
    start_python: StartPython,
    builds: Callable[[], list[list[int]]],
    how: str,
) -> None:
    """Whether it exits or is killed, no process and no file is left, and nothing is stored."""
    then = {"exits": BUILDING, "exits at once": "", "is killed": "time.sleep(600)"}[how]
    process = start_python(
        program(site, tmp_path / "cache", then=then), PYTHONPATH=pythonpath(site), PORTABLE_BUILD="60"
    )
    if how == "is killed":
        until(builds)
        process.kill()
    process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if how == "is killed" else 0)
    assert bool(builds()) is (how != "exits at once")
    assert_nothing_left(temporary)
    assert not list((tmp_path / "cache" / "entries").glob("*/*"))


def pythonpath(site: str) -> str:
    """Return the path of modules for a process of these tests."""
    return os.pathsep.join([str(Path(__file__).parents[2]), site])


@pytest.mark.parametrize("then", [BUILDING, ""], ids=["while it builds", "at once"])
def test_a_detached_build_goes_on(
    site: str,
    tmp_path: Path,
    temporary: Path,
    start_python: StartPython,
    builds: Callable[[], list[list[int]]],
    then: str,
) -> None:
    """The next process has a hit; after that nothing is left either."""
    code = program(site, tmp_path / "cache", then=then, detach=True)
    process = start_python(code, PYTHONPATH=pythonpath(site), PORTABLE_BUILD="3")
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert workers(temporary)
    until(builds)
    assert len(builds()) == 1
    until(lambda: list((tmp_path / "cache" / "entries").glob("*/*")))
    assert_nothing_left(temporary)
    module = trtcache.compile(model(), (X,), backend="portable", cache=tmp_path / "cache")
    assert module.report.partitions[0].outcome == "hit"


def test_processes_share_a_worker(
    site: str, tmp_path: Path, start_python: StartPython, builds: Callable[[], list[list[int]]]
) -> None:
    """Of three that need one program, one has a worker, and all get the engine."""
    code = program(site, tmp_path / "cache", then="print(module.wait(300), module.report.background)")
    started = [start_python(code, PYTHONPATH=pythonpath(site), PORTABLE_BUILD="5") for _ in range(3)]
    lines = [process.communicate(timeout=400)[0] for process in started]
    assert len(builds()) == 1
    assert all(line.startswith("True built by ") for line in lines), lines
    assert sum("by a worker" in line for line in lines) == 1, lines


def test_a_full_disk(portable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is in the report, calls go on, and nothing is left."""
    full = tmp_path / "full"
    full.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=64k none {full} 2>/dev/null"):  # noqa: S605
        pytest.skip("no file system can be mounted")
    try:
        monkeypatch.setenv("TMPDIR", str(full))
        (full / "rest").write_bytes(bytes(60_000))  # Python uses another folder if not even a byte is left
        module = trtcache.compile(model(), (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
        assert not module.wait(90)
        assert "space" in module.report.why
        torch.testing.assert_close(module(X), answer(model()))
        until(lambda: [path.name for path in full.iterdir()] == ["rest"], timeout_s=10.0)
    finally:
        os.system(f"umount -l {full}")  # noqa: S605


@pytest.mark.usefixtures("quick_grandchildren")
def test_a_full_cache_directory(
    portable: str, tmp_path: Path, temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls go on in torch after one warning with the reason; with space again, the next build is stored."""
    with mounted(tmp_path / "cache", "-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs") as cache:
        trtcache.Cache(cache).stats()  # the index is there before the disk is full
        filling = cache / "full"
        with filling.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        module = trtcache.compile(model(), (X,), backend=portable, cache=cache, on_miss="background")
        assert not module.wait(90)
        assert "No space left on device" in module.report.why
        warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert sum("goes on in torch" in message for message in warnings) == 1, warnings
        torch.testing.assert_close(module(X), answer(model()))
        assert_nothing_left(temporary)
        filling.unlink()
        again = trtcache.compile(model(), (X,), backend=portable, cache=cache, on_miss="background")
        assert again.wait(90), again.report.why
        torch.testing.assert_close(again(X), answer(model()))


def test_forbidden_builds_stay_forbidden(portable: str, tmp_path: Path, temporary: Path) -> None:
    """At once, and without a worker."""
    cache = Cache(config=Config(root=tmp_path / "cache", forbid_build=True, on_miss="background"))
    with pytest.raises(BuildForbiddenError):
        trtcache.compile(model(), (X,), backend=portable, cache=cache)
    assert_nothing_left(temporary)


class Statistics(nn.Module):
    """Calls change its buffers by an operator whose schema does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize by the batch."""
        return nn.functional.batch_norm(x, self.mean, self.variance, training=True)


class Local(nn.Module):
    """Operators in place change what calls compute, and no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("offset", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum."""
        return self.linear(x).add_(self.offset).relu_().add_(self.offset)


class Split(Local):
    """Calls change a view of a buffer, one of several results of an operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum."""
        self.offset.split(4)[1].mul_(2)
        return x + self.offset


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        (Local(), False),
        (Split(), True),
        (Counter(), True),
        (nn.BatchNorm1d(8), True),
        (nn.BatchNorm1d(8).eval(), False),
    ],
    ids=["local", "split", "view", "training", "eval"],
)
def test_writes_to_weights_are_found_in_an_exported_program(given: nn.Module, changes: bool) -> None:
    """Its signature does not name them."""
    assert changes_weights(torch.export.export(given, (X,))) is changes


@pytest.mark.usefixtures("quick_grandchildren")
def test_calls_that_change_weights_go_on_in_torch(portable: str, tmp_path: Path, temporary: Path) -> None:
    """If that is only found when the program is lowered: the buffers of the model and of an engine would differ."""
    given, expected = Statistics(), Statistics()
    module = trtcache.compile(given, (X,), backend=portable, cache=tmp_path / "cache", on_miss="background")
    for _ in range(2):
        torch.testing.assert_close(module(X), answer(expected))
    assert not module.wait(90)
    assert "calls change its weights" in module.report.why
    torch.testing.assert_close(module(X), answer(expected))
    torch.testing.assert_close(given.mean, expected.mean)
    assert_nothing_left(temporary)


@pytest.mark.parametrize("how", ["calls change weights", "readonly", "disabled", "autocast"])
def test_what_cannot_be_built_in_the_background_is_built_now(
    portable: str, tmp_path: Path, temporary: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why."""
    caplog.set_level(logging.INFO)
    Cache(tmp_path / "cache")
    config = Config(root=tmp_path / "cache", readonly=how == "readonly", disable=how == "disabled")
    given = Counter() if how.startswith("calls") else model()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
        module = trtcache.compile(given, (X,), backend=portable, cache=Cache(config=config), on_miss="background")
    assert (module.ready, module.report.partitions[0].outcome) == (True, "built")
    assert "is not built in the background: " in caplog.text
    assert_nothing_left(temporary)


@pytest.mark.usefixtures("quick_grandchildren")
def test_where_it_is_set(portable: str, tmp_path: Path) -> None:
    """The argument comes before the settings, and these before the environment; none of it is in the key."""
    config = Config(root=tmp_path / "cache", on_miss="background")
    module = trtcache.compile(
        model(), (X,), backend=portable, cache=Cache(config=config), settings={"on_miss": "build"}
    )
    assert module.report.partitions[0].outcome == "built"
    settings = {"on_miss": "background", "detach": True}
    module = trtcache.compile(
        model(), (X,), backend=portable, cache=tmp_path / "other", settings=settings, on_miss="build"
    )
    assert module.report.partitions[0].outcome == "built"
    key = trtcache.key(model(), (X,), backend=portable)
    assert trtcache.key(model(), (X,), backend=portable, settings=settings) == key
    for wrong in ({"on_miss": "never"}, {"settings": {"on_miss": 1}}, {"settings": {"detach": "no"}}):
        with pytest.raises(SettingsError):
            trtcache.compile(model(), (X,), backend=portable, **wrong)  # type: ignore[call-overload]
    with pytest.raises(SettingsError, match="TRTCACHE_ON_MISS"):
        Config.from_environ({"TRTCACHE_ON_MISS": "later"})


def test_an_engine_that_another_process_builds_takes_over(portable: str, tmp_path: Path, temporary: Path) -> None:
    """With ``on_busy="eager"`` the module runs in torch until then; if the other one dies, a worker builds."""
    cache = Cache(config=Config(root=tmp_path / "cache"), on_busy="eager")
    key = trtcache.key(model(), (X,), backend=portable)
    with holder(tmp_path / "cache", key.digest) as process:
        module = trtcache.compile(model(), (X,), backend=portable, cache=cache)
        (part,) = module.report.partitions
        assert (part.outcome, part.reason, module.ready) == ("eager", "busy", False)
        module.refit(model(1))
        torch.testing.assert_close(module(X), answer(model(1)))
        time.sleep(1)
        assert not [found for found in workers(temporary) if "background_worker" in found]
        process.kill()
    assert module.wait(90), module.report.why
    torch.testing.assert_close(module(X), answer(model(1)))
    assert module.report.partitions[0].outcome == "built"
    assert_nothing_left(temporary)


@pytest.mark.usefixtures("quick_grandchildren")
def test_a_program_that_another_process_builds_gets_a_manifest(portable: str, tmp_path: Path, temporary: Path) -> None:
    """Once the engine is stored, and with it the key alias; the next process does not export the model."""
    config = Config(root=tmp_path / "cache", direct="on")
    cache = Cache(config=config, on_busy="eager")
    key = trtcache.key(model(), (X,), backend=portable)
    with holder(tmp_path / "cache", key.digest) as process:
        module = trtcache.compile(model(), (X,), backend=portable, cache=cache)
        process.kill()
    assert module.wait(90), module.report.why
    assert module.report.direct.startswith("miss"), module.report.direct
    assert trtcache.compile(model(), (X,), backend=portable, cache=Cache(config=config)).report.route == "direct"
    assert_nothing_left(temporary)


@pytest.mark.usefixtures("quick_grandchildren")
def test_torch_compile(portable: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls run in eager torch, with the weights that they pass, until the engine takes over."""
    torch.compiler.reset()
    torch_compile.clear_reports()
    monkeypatch.setenv("PORTABLE_BUILD", "1")
    live = model()
    options = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    compiled = torch.compile(live, backend=torch_compile.backend, options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), answer(live))
        (report,) = torch_compile.reports()
        assert (report.engines, report.weight_sets) == ([], 0)
        live.load_state_dict(model(1).state_dict())
        torch.testing.assert_close(compiled(X), answer(model(1)))
        until(lambda: report.engines)
        time.sleep(0.2)
        torch.testing.assert_close(compiled(X), answer(model(1)))
        assert (len(report.engines), report.weight_sets, report.eager) == (1, 1, [])
    assert report.engines[0].background.startswith("built by a worker")
    assert_nothing_left(temporary)


@pytest.mark.usefixtures("quick_grandchildren")
def test_torch_compile_goes_on_in_eager_torch(
    portable: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the build fails; the report says why."""
    torch.compiler.reset()
    torch_compile.clear_reports()
    monkeypatch.setenv("PORTABLE_BUILD", "fail")
    options = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    compiled = torch.compile(model(), backend=torch_compile.backend, options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), answer(model()))
        (report,) = torch_compile.reports()
        until(lambda: report.eager)
        torch.testing.assert_close(compiled(X), answer(model()))
    assert "the compiler found an error" in report.eager[0]
    assert_nothing_left(temporary)


def test_an_onnx_file_is_refused(tmp_path: Path) -> None:
    """It cannot run in torch meanwhile."""
    (tmp_path / "model.onnx").write_bytes(b"\x08\x0a")
    with pytest.raises(SettingsError, match="on_miss"):
        trtcache.compile(tmp_path / "model.onnx", cache=tmp_path / "cache", on_miss="background")
