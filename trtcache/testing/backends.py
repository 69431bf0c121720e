"""The contract of backends and engines. A subclass names a backend."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import trtcache
from trtcache.backends import registry
from trtcache.backends.protocol import ENGINE, Backend, Engine
from trtcache.errors import IncompatibleEngineError, InputError, SettingsError
from trtcache.testing.refit import difference
from trtcache.weights.slots import fit


class Model(nn.Module):
    """A product, a sum and an output that depends on a weight alone: three weights of one value."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.full((4, 4), value))
        self.shift = nn.Parameter(torch.full((4,), value))
        self.scale = nn.Parameter(torch.full((4,), value))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tensors of shape (B, 4) and (4,) for ``x`` (B, 4)."""
        return x @ self.matrix + self.shift, self.scale * 1


class Corners(nn.Module):
    """Arithmetic that libraries get wrong in silence, and a random number."""

    def forward(
        self, x: torch.Tensor, long: torch.Tensor, byte: torch.Tensor, double: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return tensors of shape (B, 4) for such of (B, 4)."""
        return {
            "int64 beyond 2**31": long * 2 + 2**40,
            "int8 that overflows": byte + byte,
            "float64": double / 3,
            "float32": x * 2,
            "random numbers": x + torch.rand(4, device=x.device),
        }


class Floats(nn.Module):
    """Arithmetic in float32 whose results libraries get wrong for no rows, and for NaN."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return tensors for two of (B, 4)."""
        return {
            "a difference": x - y,
            "the input itself": x,
            "sum over rows": x.sum(0),
            "mean over rows": x.mean(0),
            "joined": torch.cat([x, y, x]),
            "relu": x.relu(),
            "clamp": x.clamp(-1, 1),
            "largest": x.amax(1),
            "softmax": x.softmax(1),
            "larger": torch.maximum(x, y),
        }


def float_inputs(rows: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the arguments of ``Floats``."""
    x = torch.arange(float(rows * 4), device=device).reshape(rows, 4) - 3.5
    return x, x * -0.25


class Unread(nn.Module):
    """A sum of two inputs, with one between them that nothing reads."""

    def forward(self, x: torch.Tensor, unread: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the shape of ``x`` and ``y``."""
        return x * 2 + y


def corner_inputs(rows: int, device: str) -> tuple[torch.Tensor, ...]:
    """Return the arguments of ``Corners``."""
    x = torch.arange(float(rows * 4), device=device).reshape(rows, 4)
    return x, x.long(), (x + 100).to(torch.int8), x.double() + 1


_SECOND = """
import json, sys, torch, trtcache
from trtcache.testing.backends import Model
options = json.loads(sys.argv[1])
rows = torch.export.Dim("rows", min=2, max=8)
x = torch.ones(3, 4)
module = trtcache.compile(Model(2.0), (x,), dynamic_shapes={"x": {0: rows}}, **options)
assert [partition.outcome for partition in module.report.partitions] == ["hit"], str(module.report)
if sys.argv[2] == "run":
    torch.testing.assert_close(module(x), tuple(Model(2.0)(x)))
"""


class BackendContract:
    """The tests.

    Attributes:
        backend: the name of the backend's entry point.
        device: the device of the model.
        target: the target of its builds; None for this machine.
        settings: settings of its builds.
        tolerance: the difference that is allowed to eager.
        runs: whether its engines run on this machine; otherwise they are only built and found again.
        propagates_nan: whether results are NaN where those of torch are. Set it to False for a library whose ``relu``
            of NaN is a number, and say so in the backend's documentation.
        persists: whether an artifact can be loaded by another process.
    """

    backend: ClassVar[str]
    device: ClassVar[str] = "cpu"
    target: ClassVar[str | None] = None
    settings: ClassVar[Mapping[str, Any]] = {}
    tolerance: ClassVar[float] = 1e-5
    runs: ClassVar[bool] = True
    propagates_nan: ClassVar[bool] = True
    persists: ClassVar[bool] = True

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the directory of the class's cache."""
        return tmp_path_factory.mktemp("contract") / "cache"

    @pytest.fixture(scope="class")
    @classmethod
    def module(cls, cache: Path) -> trtcache.CompiledModule:
        """Return the compiled model for 2 to 8 rows, built in this process."""
        return cls.compile(Model(1.0), cache)

    @pytest.fixture(scope="class")
    @classmethod
    def corners(cls, cache: Path) -> trtcache.CompiledModule:
        """Return ``Corners``, compiled for any number of rows up to 8."""
        if not cls.runs:
            pytest.skip("its engines do not run on this machine")
        rows = ({0: torch.export.Dim("rows", max=8)},) * 4
        inputs = corner_inputs(3, cls.device)
        return trtcache.compile(Corners(), inputs, dynamic_shapes=rows, **cls.options(cache))

    @pytest.fixture(scope="class")
    @classmethod
    def floats(cls, cache: Path) -> trtcache.CompiledModule:
        """Return ``Floats``, compiled for any number of rows up to 8."""
        if not cls.runs:
            pytest.skip("its engines do not run on this machine")
        return cls.compile_floats(cache)

    @classmethod
    def compile_floats(cls, cache: Path) -> trtcache.CompiledModule:
        """Compile ``Floats`` for any number of rows up to 8."""
        rows = ({0: torch.export.Dim("rows", max=8)},) * 2
        return trtcache.compile(Floats(), float_inputs(3, cls.device), dynamic_shapes=rows, **cls.options(cache))

    @classmethod
    def options(cls, cache: Path) -> dict[str, Any]:
        """Return the options of every compile."""
        return {
            "backend": cls.backend,
            "target": cls.target,
            "settings": dict(cls.settings),
            "cache": str(cache),
        }

    @classmethod
    def compile(cls, model: nn.Module, cache: Path) -> trtcache.CompiledModule:
        """Compile the model for 2 to 8 rows."""
        rows = torch.export.Dim("rows", min=2, max=8)
        shapes = {"x": {0: rows}}
        return trtcache.compile(model.to(cls.device), (cls.rows(3),), dynamic_shapes=shapes, **cls.options(cache))

    @classmethod
    def rows(cls, count: int) -> torch.Tensor:
        """Return an input with this number of rows."""
        return torch.randn(count, 4, generator=torch.Generator().manual_seed(count)).to(cls.device)

    def find(self) -> Backend:
        """Return the backend, as a compile finds it."""
        return registry.find(self.backend, self.device)

    def load(self, module: trtcache.CompiledModule, cache: Path, value: float, *, lacks: int = 0) -> Engine:
        """Load the artifact with weights of one value, of which the last ``lacks`` are missing."""
        key = module.report.partitions[0].key
        entry = trtcache.Cache(cache).get(key)  # type: ignore[arg-type]  # it has one
        assert entry is not None
        weights = self.weights(module, value)
        for name in list(weights)[len(weights) - lacks :]:
            del weights[name]
        device = torch.device(self.device)
        return self.find().load_entry(entry.read, device=device, constants={}, weights=weights)

    def weights(self, module: trtcache.CompiledModule, value: float) -> dict[str, torch.Tensor]:
        """Return the engine's weights, all of one value."""
        program = trtcache.lower(Model(value), (torch.ones(3, 4),), backend=self.backend)
        state = Model(value).to(self.device).state_dict()
        return dict(fit(program.interface.weights, state, known=frozenset(state), device=torch.device(self.device)))

    def require_runs(self) -> None:
        """Skip a test of a backend whose engines do not run on this machine."""
        if not self.runs:
            pytest.skip("its engines do not run on this machine")

    def expect(self, value: float, x: torch.Tensor, found: Any) -> None:
        """Assert that outputs are those of the model with weights of a value."""
        with torch.no_grad():
            expected = list(Model(value).to(self.device)(x))
        assert difference(expected, list(found), self.tolerance) is None

    def test_its_facts_are_equal_each_time(self) -> None:
        """What goes into keys is the same for two instances, and can be part of a key."""
        facts = []
        for _ in range(2):
            backend = self.find()
            target = backend.target(self.target, torch.device(self.device))
            facts.append({**backend.versions(self.device), **backend.ambient(), "target": target.document()})
        assert len({trtcache.CacheKey.of("test", one).digest for one in facts}) == 1

    def test_it_knows_its_devices(self) -> None:
        """It is available on this device, and says why on another."""
        backend = self.find()
        assert self.device in backend.capabilities.devices
        assert backend.unavailable(self.device) is None
        assert backend.unavailable("abacus")

    def test_it_refuses_a_target_that_it_does_not_know(self) -> None:
        """A named target is obeyed or refused: an engine for another machine would not run there."""
        with pytest.raises(SettingsError):
            self.find().target("abacus", torch.device(self.device))

    def test_its_versions_are_in_the_key(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        """Another version of the backend, or of its toolchain, is another key."""
        options = {name: value for name, value in self.options(cache).items() if name != "cache"}
        keys = [trtcache.key(Model(), (self.rows(3),), **options)]
        kind, toolchain = type(self.find()), self.find().toolchain(self.device)
        with monkeypatch.context() as patch:
            patch.setattr(kind, "version", "of a test")
            keys.append(trtcache.key(Model(), (self.rows(3),), **options))
        with monkeypatch.context() as patch:
            patch.setattr(kind, "toolchain", lambda *_: {**toolchain, "test": "1"})
            keys.append(trtcache.key(Model(), (self.rows(3),), **options))
        assert len({key.digest for key in keys}) == 3

    def test_a_second_compile_hits(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """The first one built a single engine, and the stored one is found."""
        assert module.report.left == ()
        assert [partition.outcome for partition in module.report.partitions] == ["built"]
        again = self.compile(Model(1.0), cache)
        assert [partition.outcome for partition in again.report.partitions] == ["hit"]

    def test_it_answers_as_eager_does_for_every_size(self, module: trtcache.CompiledModule) -> None:
        """The number of rows varies from 2 to 8, and an input need not be contiguous."""
        self.require_runs()
        for count in (2, 3, 8):
            self.expect(1.0, self.rows(count), module(self.rows(count)))
        x = self.rows(8)[:4].t().contiguous().t()
        self.expect(1.0, x, module(x))

    def test_numbers_are_those_of_eager(self, corners: trtcache.CompiledModule) -> None:
        """No dtype is computed in another one: operators that would be stay in torch (``why_not``)."""
        inputs = corner_inputs(3, self.device)
        expected, found = Corners()(*inputs), corners(*inputs)
        for name in ("int64 beyond 2**31", "int8 that overflows", "float64", "float32"):
            assert expected[name].dtype == found[name].dtype, name
            assert torch.equal(expected[name], found[name]), name

    def test_random_numbers_are_those_of_eager(self, corners: trtcache.CompiledModule) -> None:
        """Under one seed, in two calls: operators that draw them stay in torch."""
        inputs, drawn = corner_inputs(3, self.device), []
        for module in (Corners(), corners):
            torch.manual_seed(5)
            drawn.append([module(*inputs)["random numbers"] for _ in range(2)])
        assert all(map(torch.equal, *drawn))
        assert not torch.equal(*drawn[1])

    def test_small_sizes_are_right_or_refused(self, floats: trtcache.CompiledModule) -> None:
        """No row and one row are calls as any other, or an error without ``Capabilities.small_sizes``."""
        for rows in (0, 1, 2, 8):
            inputs = float_inputs(rows, self.device)
            if rows < 2 and not self.find().capabilities.small_sizes:
                with pytest.raises(InputError):
                    floats(*inputs)
            else:
                self.compare(Floats()(*inputs), floats(*inputs), f"{rows} rows")

    def test_an_input_that_nothing_reads_is_skipped(self, cache: Path) -> None:
        """``run`` gets it all the same, between two that are read."""
        x, y = float_inputs(3, self.device)
        inputs = (x, torch.full_like(x, float("nan")), y)
        module = trtcache.compile(Unread(), inputs, **self.options(cache))
        assert module.report.left == ()
        if self.runs:
            assert difference(x * 2 + y, module(*inputs), self.tolerance) is None

    def test_infinity_and_nan_are_those_of_eager(self, floats: trtcache.CompiledModule) -> None:
        """Where torch's result is NaN, another number is a wrong answer that looks right."""
        x, y = float_inputs(3, self.device)
        for value in (float("inf"), float("-inf"), float("nan")):
            changed = x.clone()
            changed[1, 2] = value
            self.compare(Floats()(changed, y), floats(changed, y), f"{value} in the input")

    def compare(self, expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor], what: str) -> None:
        """Assert that results are those of eager, with NaN in the same places unless the backend loses it."""
        for name, tensor in expected.items():
            given = found[name] if self.propagates_nan else torch.where(tensor.isnan(), tensor, found[name])
            torch.testing.assert_close(
                given,
                tensor,
                rtol=self.tolerance,
                atol=self.tolerance,
                equal_nan=True,
                msg=f"{what}: {name}: ".__add__,
            )

    def test_another_process_hits(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """With other weights, and with builds forbidden, from what is stored alone."""
        if not self.persists:
            pytest.skip("its artifacts are of one process")
        if self.device != "cpu":
            pytest.skip("the model of the second process is on the CPU")
        values = int(bool(module.report.partitions[0].frozen))
        code = _SECOND.replace("Model(2.0)", "Model(1.0)") if values else _SECOND
        done = subprocess.run(  # noqa: S603  # this Python
            [sys.executable, "-W", "ignore", "-c", code, json.dumps(self.options(cache)), "run" if self.runs else ""],
            env={**os.environ, "TRTCACHE_FORBID_BUILD": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def test_a_refit_leaves_the_first_engine_as_it_is(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """Two engines of one artifact each have their own weights."""
        self.require_runs()
        if not self.find().capabilities.refit:
            pytest.skip("its engines take no other weights")
        first = self.load(module, cache, 1.0)
        second = first.refit(self.weights(module, 2.0))
        self.expect(2.0, self.rows(3), second.run([self.rows(3)]))
        self.expect(1.0, self.rows(3), first.run([self.rows(3)]))

    def test_an_artifact_loads_from_any_bytes_and_twice(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """Loading reads a view as well as bytes, and a second load is an engine of its own."""
        self.require_runs()
        entry = trtcache.Cache(cache).get(module.report.partitions[0].key)  # type: ignore[arg-type]  # it has one
        assert entry is not None
        members = {name: bytes(entry.read(name)) for name in entry.members}
        views: list[dict[str, Any]] = [members, {name: memoryview(content) for name, content in members.items()}]
        for value, view in enumerate(views, start=1):
            weights = self.weights(module, float(value))
            engine = self.find().load_entry(
                view.__getitem__, device=torch.device(self.device), constants={}, weights=weights
            )
            self.expect(float(value), self.rows(3), engine.run([self.rows(3)]))

    def test_a_run_keeps_nothing_and_changes_nothing(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """Inputs stay as they are, and the outputs of two calls share no memory with each other or with inputs."""
        self.require_runs()
        engine, x = self.load(module, cache, 1.0), self.rows(3)
        before = x.clone()
        first = engine.run([x])
        kept = [one.clone() for one in first]
        x.fill_(7.0)  # the caller's own memory
        second = engine.run([self.rows(8)])
        assert all(map(torch.equal, first, kept))
        assert not {one.data_ptr() for one in first} & {one.data_ptr() for one in second}
        x.copy_(before)
        self.expect(1.0, x, engine.run([x]))
        assert torch.equal(x, before)

    def test_an_output_can_be_changed(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """A caller that writes into its outputs changes no weight and no later result."""
        self.require_runs()
        engine, x = self.load(module, cache, 1.0), self.rows(3)
        for output in engine.run([x]):
            output.fill_(7.0)
        self.expect(1.0, x, engine.run([x]))

    def test_weights_are_shared_as_promised(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """With ``shares_weights`` the next call has weights that were changed in place, otherwise the old ones."""
        self.require_runs()
        if module.report.partitions[0].frozen:
            pytest.skip("its weights are in the artifact")
        weights = self.weights(module, 1.0)
        entry = trtcache.Cache(cache).get(module.report.partitions[0].key)  # type: ignore[arg-type]  # it has one
        assert entry is not None
        engine = self.find().load_entry(entry.read, device=torch.device(self.device), constants={}, weights=weights)
        self.expect(1.0, self.rows(3), engine.run([self.rows(3)]))
        for weight in weights.values():
            weight.detach().fill_(3.0)
        self.expect(3.0 if engine.shares_weights else 1.0, self.rows(3), engine.run([self.rows(3)]))

    def test_an_engine_with_a_weight_unset_is_not_returned(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """A missing weight is an error at load."""
        self.require_runs()
        if module.report.partitions[0].frozen:
            pytest.skip("its weights are in the artifact")
        with pytest.raises(IncompatibleEngineError):
            self.load(module, cache, 1.0, lacks=1)

    def test_junk_is_not_loaded_and_the_error_can_be_pickled(self) -> None:
        """Bytes that are no artifact of this backend are an IncompatibleEngineError, which crosses processes."""
        self.require_runs()
        members: dict[str, bytes] = {ENGINE: b"junk"}
        device = torch.device(self.device)
        with pytest.raises(IncompatibleEngineError) as raised:
            self.find().load(members[ENGINE], device=device, constants={}, weights={})
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301  # our own bytes

    def test_threads_share_an_engine(self, module: trtcache.CompiledModule, cache: Path) -> None:
        """Calls of one engine from several threads at once are each right."""
        self.require_runs()
        engine = self.load(module, cache, 2.0)
        model = Model(2.0).to(self.device)
        start = threading.Barrier(4)

        def call(number: int) -> list[str]:
            x = torch.full((3, 4), float(number), device=self.device)
            with torch.no_grad():
                expected = list(model(x))
            start.wait(60)  # so that calls overlap
            differences = (difference(expected, engine.run([x]), self.tolerance) for _ in range(200))
            return [why for why in differences if why]

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads take turns within a call that holds the GIL, too
        try:
            with ThreadPoolExecutor(4) as pool:
                wrong = list(pool.map(call, range(4)))  # an exception of a call is the test's
        finally:
            sys.setswitchinterval(interval)
        assert wrong == [[], [], [], []]
