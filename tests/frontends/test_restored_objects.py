"""Objects in and around a model after an export: each is as it was before, as a whole, and no code of its class ran."""

from __future__ import annotations

import enum
import functools
import importlib
import mmap
import sys
import threading
import types
import weakref
from collections import OrderedDict, UserDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from trtcache.lowering import threads
from trtcache.lowering.caches import preserve_caches
from trtcache.lowering.model_state import preserve_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trtcache

X = torch.ones(2, 3)
HELD: Any = None
TABLES: dict[int, torch.Tensor] = {}


pytestmark = pytest.mark.usefixtures("own_threads_only")


@pytest.fixture(autouse=True)
def _hold_nothing() -> Iterator[None]:
    """Hold nothing at the end."""
    global HELD
    yield
    HELD = None
    TABLES.clear()


class Model(nn.Module):
    """Calls a function of itself and the input."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], held: Any = None) -> None:
        super().__init__()
        self.function, self.held = function, held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        result: torch.Tensor = self.function(self, x)
        return result


def fills(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Fill a table beside the model, so that everything beside it is restored."""
    return x + TABLES.setdefault(x.shape[1], torch.arange(x.shape[1]) * 2.0)


class Bounded(dict[int, Any]):
    """A dict with the order of its keys."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.order = most, list[int]()

    def get_or_put(self, key: int) -> torch.Tensor:
        """Return the table of a size, and drop the oldest one."""
        if key not in self:
            self[key] = torch.arange(key) * 2.0
            self.order.append(key)
            while len(self.order) > self.most:
                del self[self.order.pop(0)]
        result: torch.Tensor = self[key]
        return result


class Split:
    """A dict and the order of its keys side by side, in slots."""

    __slots__ = ("order", "tables")

    def __init__(self) -> None:
        self.tables, self.order = dict[int, torch.Tensor](), list[int]()

    def get_or_put(self, key: int) -> torch.Tensor:
        """Return the table of a size, and drop the oldest one."""
        if key not in self.order:
            self.tables[key] = torch.arange(key) * 2.0
            self.order.append(key)
            while len(self.order) > 1:
                del self.tables[self.order.pop(0)]
        return self.tables[key]


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("is_models", [True, False])
@pytest.mark.parametrize("make", [lambda: Bounded(1), Split])
def test_a_table_and_the_order_of_its_keys_agree(
    compiled: Callable[..., trtcache.CompiledModule], make: Callable[[], Any], is_models: bool, is_alone: bool
) -> None:
    """Beside a model and in it, and also while another thread runs."""
    global HELD
    HELD = make()
    model = Model(lambda self, x: x + (self.held or HELD).get_or_put(x.shape[1]), HELD if is_models else None)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    if not is_alone:
        thread.start()
    try:
        module = compiled(model, (X,))
        assert HELD.order == []
        for size in (3, 4, 3):
            answer = model(torch.ones(2, size))
            assert type(answer) is torch.Tensor
        torch.testing.assert_close(module(X), answer)
    finally:
        stop.set()
        if thread.ident:
            thread.join()


LIBRARY = """
class Link:
    pass

class Cache:
    def __init__(self):
        self.root, self.links, self.asked = Link(), {}, 0
        self.root.next = None
    def get_or_put(self, key, value):
        self.asked += 1
        if key not in self.links:
            link = self.links[key] = Link()
            link.key, link.value, link.next, self.root.next = key, value, self.root.next, link
        assert self.root.next.key in self.links
        return self.links[key].value
"""


def test_an_object_of_a_library_is_restored_as_a_whole_or_not_at_all(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it has tensors of the export, with its parts; if not, it stays as the library left it."""
    global HELD
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_of_a_test.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("library_of_a_test")
    try:
        HELD = [library.Cache(), library.Cache()]

        def function(_: Any, x: torch.Tensor) -> torch.Tensor:
            HELD[1].get_or_put(3, 1.0)
            result: torch.Tensor = x + HELD[0].get_or_put(x.shape[1], torch.arange(x.shape[1]) * 2.0)
            return result

        model = Model(function)
        compiled(model, (X,))
        assert (HELD[0].links, HELD[0].root.next, HELD[0].asked) == ({}, None, 0)
        assert (list(HELD[1].links), HELD[1].asked) == ([3], 1)
        assert type(model(X)) is torch.Tensor
    finally:
        del sys.modules["library_of_a_test"]


def test_results_of_before_stay_in_cached_functions(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Those that the export added are removed, unless the cache has a limit and no tensors."""
    global HELD

    @functools.cache
    def kept(name: str) -> dict[str, str]:
        return {}

    @functools.lru_cache(maxsize=8)
    def limited(name: str) -> dict[str, str]:
        return {}

    @functools.lru_cache(maxsize=8)
    def tensors(size: int) -> torch.Tensor:
        return torch.arange(size) * 2.0

    HELD = (kept, limited, tensors)
    kept("prompts")["hello"] = limited("session")["history"] = "the user's"

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        kept("tables")["3"] = limited("tables")["3"] = "the export's"
        return fills(None, x) + tensors(x.shape[1])

    model = Model(function)
    compiled(model, (X,))
    assert (kept("prompts"), kept("tables")) == ({"hello": "the user's"}, {})
    assert limited("session") == {"history": "the user's"}
    assert type(model(X)) is torch.Tensor


def test_what_an_import_in_forward_has_written_stays(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not done again; tensors of the export do not stay, also if their class comes from there."""
    (tmp_path / "registry_of_a_test.py").write_text("PRIORITY, ORDER, BACKEND, COUNT = {}, [], 'slow', 0\n")
    (tmp_path / "plugin_of_a_test.py").write_text(
        "import registry_of_a_test as registry, torch\n"
        "registry.PRIORITY['fast'] = 10\nregistry.ORDER.append('fast')\n"
        "registry.BACKEND, registry.COUNT = 'fast', registry.COUNT + 1\n"
        "class Table:\n    def __init__(self, size):\n        self.values = torch.arange(size) * 2.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = importlib.import_module("registry_of_a_test")
    tables: dict[int, Any] = {}

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        plugin: Any = importlib.import_module("plugin_of_a_test")
        self.held = x.shape
        if x.shape[1] not in tables:
            tables[x.shape[1]] = plugin.Table(x.shape[1])
        result: torch.Tensor = x * registry.PRIORITY[registry.BACKEND] + tables[x.shape[1]].values
        return result

    global HELD
    HELD = registry
    model = Model(function)
    try:
        compiled(model, (X,))
        assert vars(registry).items() >= {"ORDER": ["fast"], "BACKEND": "fast", "COUNT": 1}.items()
        assert (tables, model.held) == ({}, None)
        assert type(model(X)) is torch.Tensor
    finally:
        for name in ("plugin_of_a_test", "registry_of_a_test"):
            sys.modules.pop(name, None)


class Server:
    """What a thread writes to."""

    def __init__(self) -> None:
        self.log, self.users, self.received = list[int](), dict[int, str](), 0
        self.tables: dict[int, torch.Tensor] = {}

    def serve(self, stop: threading.Event) -> None:
        """Count requests until the end."""
        while not stop.wait(0.002):
            self.received += 1
            self.log.append(self.received)
            self.users[self.received] = "here"


@pytest.mark.parametrize("is_models", [True, False])
def test_what_a_thread_writes_meanwhile_stays(
    compiled: Callable[..., trtcache.CompiledModule], is_models: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In an object of the model, and beside it; and no number of it is said to be changed by ``forward``."""
    global HELD
    HELD, stop = Server(), threading.Event()
    model = Model(fills, HELD if is_models else None)
    thread = threading.Thread(target=HELD.serve, args=(stop,))
    thread.start()
    try:
        compiled(model, (X,))
    finally:
        stop.set()
        thread.join()
    assert HELD.received == len(HELD.log) == len(HELD.users) > 0
    assert TABLES == {}
    assert "forward changes the number" not in caplog.text


@pytest.mark.parametrize(
    ("of_class", "of_target", "expected"),
    [
        ("threading", __name__, False),
        ("threading", "torch._inductor.compile_worker.timer", True),
        ("library_of_a_test", __name__, False),
        ("tqdm._monitor", __name__, True),
        ("ipykernel.heartbeat", __name__, True),
    ],
)
def test_threads_can_run_code_of_the_users(of_class: str, of_target: str, *, expected: bool) -> None:
    """Those of servers do, and those that run any function; only torch's own and a few others do not."""
    stop = threading.Event()

    def wait() -> None:
        stop.wait()

    wait.__module__ = of_target
    thread: threading.Thread = type("Thread", (threading.Thread,), {"__module__": of_class})(target=wait)
    thread.start()
    try:
        assert threads.is_alone() is expected
    finally:
        stop.set()
        thread.join()


class Rope:
    """Caches its table in a function that it makes."""

    def __init__(self) -> None:
        self.get = functools.lru_cache(8)(self._make)

    def _make(self, size: int) -> torch.Tensor:
        return torch.arange(size) * 2.0


def in_local(holder: Any, size: int) -> torch.Tensor:
    """Return the table of a size in a ``threading.local``."""
    if not hasattr(holder, "table"):
        holder.table = torch.arange(size) * 2.0
    result: torch.Tensor = holder.table
    return result


def with_cell() -> Callable[[int], torch.Tensor]:
    """Return a function with a table in its closure."""
    table: torch.Tensor | None = None

    def get(size: int) -> torch.Tensor:
        nonlocal table
        table = torch.arange(size) * 2.0 if table is None else table
        return table

    return get


LED_TO: dict[str, tuple[Callable[[], Any], Callable[[Any, int], torch.Tensor]]] = {
    "a cached method of an object": (Rope, lambda rope, size: rope.get(size)),
    "threading.local": (threading.local, in_local),
    "a weak dictionary": (
        lambda: (weakref.WeakKeyDictionary(), KEY),
        lambda held, size: held[0].setdefault(held[1], torch.arange(size) * 2.0),
    ),
    "a cached function in a dict": (
        lambda: {"get": functools.cache(lambda size: torch.arange(size) * 2.0)},
        lambda held, size: held["get"](size),
    ),
    "a closure in a list": (lambda: [with_cell()], lambda held, size: held[0](size)),
    "a namespace in a dict": (
        dict,
        lambda held, size: held.setdefault(size, types.SimpleNamespace(table=torch.arange(size) * 2.0)).table,
    ),
    "a UserDict in a dict": (
        dict,
        lambda held, size: held.setdefault(size, UserDict({"table": torch.arange(size) * 2.0}))["table"],
    ),
    "a mapping proxy in a dict": (
        dict,
        lambda held, size: held.setdefault(size, types.MappingProxyType({"table": torch.arange(size) * 2.0}))["table"],
    ),
}
KEY = type("Key", (), {})()


@pytest.mark.parametrize("is_models", [True, False])
@pytest.mark.parametrize("name", LED_TO)
def test_tables_that_objects_lead_to_are_restored(
    compiled: Callable[..., trtcache.CompiledModule], name: str, is_models: bool
) -> None:
    """Functions, and objects of Python's own, in a model and beside it."""
    global HELD
    make, get = LED_TO[name]
    HELD = make()
    model = Model(lambda self, x: x + get(self.held or HELD, x.shape[1]), HELD if is_models else None)
    module = compiled(model, (X,))
    answer = model(X)
    assert type(answer) is torch.Tensor
    torch.testing.assert_close(module(X), answer)


FILES = {
    "tables_of_a_test.py": "import torch\nTABLES = {}\n\ndef get(size):\n"
    "    return TABLES.setdefault(size, torch.arange(size) * 2.0)\n\nclass Rope:\n    def get(self, size):\n"
    "        return get(size)\n",
    "layers_of_a_test.py": "from tables_of_a_test import get\n\ndef apply(size):\n    return get(size)\n",
    "folder_of_a_test/rope.py": "import torch\nTABLES = {}\n\ndef get(size):\n"
    "    return TABLES.setdefault(size, torch.arange(size) * 2.0)\n",
    "by_function.py": "from layers_of_a_test import apply as get\n",
    "by_class.py": "from tables_of_a_test import Rope\n\ndef get(size):\n    return Rope().get(size)\n",
    "by_folder.py": "import folder_of_a_test.rope as rope\n\ndef get(size):\n    return rope.get(size)\n",
}
MODEL = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + get(x.shape[1])\n"


@pytest.mark.parametrize("name", ["by_function", "by_class", "by_folder"])
def test_tables_in_files_that_files_import_are_restored(
    compiled: Callable[..., trtcache.CompiledModule], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function, the class or the module that a file imports, also of a folder without ``__init__.py``."""
    (tmp_path / "folder_of_a_test").mkdir()
    for file, text in FILES.items():
        (tmp_path / file).write_text(text + (MODEL if file.startswith("by_") else ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    try:
        model = importlib.import_module(name).Model()
        compiled(model, (X,))
        assert type(model(X)) is torch.Tensor
    finally:
        for new in set(sys.modules) - before:
            if new.split(".")[0].endswith("_of_a_test") or new.startswith("by_"):
                del sys.modules[new]


def test_a_cache_that_is_cleared_and_filled_again_is_restored(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """It counts as many misses as before."""
    global HELD
    HELD = functools.cache(lambda size: torch.arange(size) * 2.0)
    HELD(5)

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        HELD.cache_clear()
        result: torch.Tensor = x + HELD(x.shape[1])
        return result

    compiled(Model(function), (X,))
    assert type(HELD(3)) is torch.Tensor
    assert torch.equal(HELD(5), torch.arange(5) * 2.0)


def test_what_a_thread_wrote_that_ended_meanwhile_stays(
    compiled: Callable[..., trtcache.CompiledModule], caplog: pytest.LogCaptureFixture
) -> None:
    """It ran when the export began."""
    global HELD
    HELD, go = Server(), threading.Event()
    thread = threading.Thread(target=lambda: go.wait() and HELD.log.append(1))
    thread.start()

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        go.set()
        thread.join()
        return fills(None, x)

    compiled(Model(function), (X,))
    assert HELD.log == [1]
    assert TABLES == {}


RAN: list[str] = []


class Base:
    """A slot."""

    __slots__ = ("size",)


class Sized(Base):
    """Has a property of the name of a slot."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = [1]

    @property
    def size(self) -> int:  # type: ignore[override]  # models have that
        """Fail."""
        RAN.append("size")
        raise RuntimeError


class Lazy(list[Any]):
    """Creates its elements when it is read."""

    def __iter__(self) -> Iterator[Any]:
        RAN.append("list")
        raise RuntimeError


class Creating(OrderedDict[str, Any]):
    """Creates an object for each look-up."""

    def __getitem__(self, key: str) -> Any:
        RAN.append("dict")
        return nn.Parameter(super().__getitem__(key).detach().clone())


class Same(set[Any]):
    """Compares in a way of its own."""

    def __ne__(self, _: object) -> bool:
        RAN.append("set")
        raise RuntimeError


class Proxy:
    """Says that it is of another class, which is only known with a connection."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]  # proxies do that
        RAN.append("class")
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError


class Unnamed:
    """Has no module."""

    __module__ = property(lambda _: RAN.append("module"))  # type: ignore[assignment]  # metaclasses do that


ODD: dict[str, Callable[[], Any]] = {
    "slots": Sized,
    "list": lambda: Lazy([1, 2]),
    "dict": lambda: Creating(one=torch.ones(1)),
    "set": lambda: Same({1}),
    "proxy": Proxy,
    "class without a module": Unnamed,
    "weak proxy": lambda: weakref.proxy(KEPT),
    "UserDict": lambda: UserDict({"a": 1}),
}
KEPT = type("Kept", (list,), {})([1])


@pytest.mark.parametrize("is_models", [True, False])
@pytest.mark.parametrize("kind", ODD)
def test_no_code_of_a_class_runs(kind: str, is_models: bool) -> None:
    """When objects are recorded, compared and restored, in a model and beside it."""
    global HELD
    HELD = ODD[kind]()
    model = Model(fills)
    if is_models:
        object.__setattr__(model, "held", HELD)  # ``nn.Module.__setattr__`` asks for the class
    RAN.clear()
    with preserve_state(model) as changes, preserve_caches(model, changes) as caches:
        caches.restores_all = True
        TABLES[1] = torch.ones(1)
        model.training = True
    assert RAN == []
    assert not TABLES
    assert not changes.numbers


def test_parameters_in_a_dict_that_creates_them_are_the_same_afterwards(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """An optimizer has the first ones."""
    linear = nn.Linear(3, 3)
    weight = linear.weight
    linear._parameters = Creating(linear._parameters)  # type: ignore[assignment]  # DeepSpeed does that
    RAN.clear()
    with preserve_state(linear):
        pass
    assert RAN == []
    assert dict.__getitem__(linear._parameters, "weight") is weight
    assert compiled(Model(lambda _, x: linear(x)), (X,))(X).shape == X.shape


def test_the_order_of_a_cache_is_restored(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """By it the cache chooses what it drops."""
    global HELD
    HELD = OrderedDict((size, torch.arange(size) * 2.0) for size in (4, 5))

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.held = x.shape
        HELD.move_to_end(4)
        if (size := x.shape[1]) not in HELD:
            HELD[size] = torch.arange(size) * 2.0
            HELD.popitem(last=False)
        result: torch.Tensor = x + HELD[size]
        return result

    compiled(Model(function), (X,))
    assert list(HELD) == [4, 5]


class Values(weakref.WeakValueDictionary[str, Any]):
    """A class of the user's."""


class Flags(enum.Flag):
    """Flags whose combinations are members once they are made."""

    A = 1
    B = 2
    C = 4


def test_what_is_gone_or_made_once_is_left_alone(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Dead entries of weak dictionaries, and combinations of flags."""
    global HELD
    owner: Any = types.SimpleNamespace()
    owner.part = Plain()
    HELD = Values(part=owner.part)

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        owner.__dict__.pop("part", None)
        self.held = Flags.A | Flags.C
        made.append(self.held)
        return fills(None, x)

    made: list[Flags] = []
    model = Model(function)
    model.values = HELD
    compiled(model, (X,))
    assert made == [] or made[0] is Flags.A | Flags.C
    assert len(HELD.data) == len(list(HELD.values()))
    assert Flags(5) is Flags.A | Flags.C


class Plain:
    """An object."""


def test_memory_of_other_processes_is_left_alone(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """What another process has written meanwhile would be lost; an array of this one is restored."""
    shared = np.frombuffer(mmap.mmap(-1, 64), dtype=np.float64)
    own = np.zeros(8).reshape(2, 4)

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        shared[0] = own[0, 0] = 7
        return x + 1

    model = Model(function, [shared, own])
    compiled(model, (X,))
    assert (shared[0], own[0, 0]) == (7, 0)


def test_a_program_with_many_objects_is_recorded_in_part(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The nearest ones, of all files."""
    global HELD
    HELD = [{"number": number} for number in range(30_000)]
    model = Model(fills)
    with preserve_state(model) as changes, preserve_caches(model, changes) as caches:
        pass
    assert len(caches.contents) < 15_000
    compiled(model, (X,))
    assert TABLES == {}
