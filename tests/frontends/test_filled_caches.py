"""Caches outside of a model: what an export leaves in them is taken away, and eager answers with real tensors."""

from __future__ import annotations

import argparse
import functools
import random
import sys
import threading
import types
from array import array
from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable

    import trtcache

X = torch.arange(8.0).view(2, 4)


pytestmark = pytest.mark.usefixtures("own_threads_only")


TABLES: dict[str, Any] = {"kept": 1}
TABLE_LIST: list[torch.Tensor] = []
GLOBAL_TABLE: torch.Tensor | None = None


class Plain:
    """An object with a table."""

    table: torch.Tensor | None = None


PLAIN = Plain()


class Cached(nn.Module):
    """A class that has a table and caches."""

    table: torch.Tensor | None = None
    tables: dict[int, torch.Tensor] = {}  # noqa: RUF012  # shared by design
    holder: nn.Module

    def __init__(self, get: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.get = get

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the table."""
        result: torch.Tensor = self.linear(x) + self.get(self)
        return result

    @functools.lru_cache(maxsize=8)  # noqa: B019  # models have that
    def computed(self) -> torch.Tensor:
        """Return the table."""
        return torch.arange(4.0)


@functools.cache
def unlimited() -> torch.Tensor:
    """Return the table."""
    return torch.arange(4.0)


@functools.lru_cache(maxsize=4)
def nested() -> tuple[int, dict[str, torch.Tensor]]:
    """Return the table inside others."""
    return 1, {"table": torch.arange(4.0)}


def of_default(_: Any, known: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006  # models have that
    """Keep the table in a default."""
    return known.setdefault("table", torch.arange(4.0))


def of_global(_: Any) -> torch.Tensor:
    """Keep the table under a global name."""
    global GLOBAL_TABLE
    if GLOBAL_TABLE is None:
        GLOBAL_TABLE = torch.arange(4.0)
    return GLOBAL_TABLE


def of_list(_: Any) -> torch.Tensor:
    """Keep the table in a global list."""
    if not TABLE_LIST:
        TABLE_LIST.append(torch.arange(4.0))
    return TABLE_LIST[0]


def of_object(_: Any) -> torch.Tensor:
    """Keep the table in an object."""
    if PLAIN.table is None:
        PLAIN.table = torch.arange(4.0)
    return PLAIN.table


def of_class(model: Cached) -> torch.Tensor:
    """Keep tables in the class."""
    if Cached.table is None:
        Cached.table = torch.arange(4.0)
    return Cached.table + model.tables.setdefault(1, torch.arange(4.0))


def closure() -> Callable[[Any], torch.Tensor]:
    """Return a function that keeps tables in its closure."""
    known: dict[str, torch.Tensor] = {}
    table: torch.Tensor | None = None

    def get(_: Any) -> torch.Tensor:
        nonlocal table
        if table is None:
            table = torch.arange(4.0)
        return table + known.setdefault("table", torch.arange(4.0))

    return get


class Tables:
    """A class beside the model that has tables and caches."""

    kept: dict[str, torch.Tensor] = {}  # noqa: RUF012  # shared by design
    only: Tables | None = None

    def __init__(self) -> None:
        self.table = torch.arange(4.0)

    @staticmethod
    @functools.lru_cache
    def computed() -> torch.Tensor:
        """Return the table."""
        return torch.arange(4.0)

    @classmethod
    def single(cls) -> Tables:
        """Return the only object."""
        if cls.only is None:
            cls.only = cls()
        return cls.only


def of_function(_: Any) -> torch.Tensor:
    """Keep the table as an attribute of the function."""
    if not hasattr(of_function, "table"):
        of_function.table = torch.arange(4.0)  # type: ignore[attr-defined]  # a function can have any
    table: torch.Tensor = of_function.table  # type: ignore[attr-defined]  # it has it now
    return table


class Holder(nn.Module):
    """A module beside the model that creates its tables in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Plain()
        self.made: torch.Tensor | None = None

    def forward(self) -> torch.Tensor:
        """Return tables of its own and of an object."""
        if self.made is None or self.inner.table is None:
            self.made, self.inner.table = torch.arange(4.0), torch.arange(4.0)
        return self.made + self.inner.table


class Missing(dict[int, torch.Tensor]):
    """A dict that makes what it does not have."""

    def __missing__(self, key: int) -> torch.Tensor:
        self[key] = torch.arange(4.0)
        return self[key]


class Slotted:
    """An object without a dict."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table = torch.arange(4.0)


class Lazy:
    """An object that makes a table in a method."""

    made: torch.Tensor | None = None

    def get(self, _: Any) -> torch.Tensor:
        """Return the table."""
        if self.made is None:
            self.made = torch.arange(4.0)
        return self.made


HOLDER, MISSING, SLOTTED, MEMBERS = Holder(), Missing(), dict[int, Slotted](), set[torch.Tensor]()
PAIR, BOUND, PARTIAL = (Lazy(), 1), Lazy().get, functools.partial(Lazy.get, Lazy())


def of_set(_: Any) -> torch.Tensor:
    """Keep the table in a set."""
    if not MEMBERS:
        MEMBERS.add(torch.arange(4.0))
    return next(iter(MEMBERS))


ORDERED: OrderedDict[int, torch.Tensor] = OrderedDict()
Cached.holder = Holder()
MADE: defaultdict[int, torch.Tensor] = defaultdict(lambda: torch.arange(4.0))

PLACES: dict[str, Callable[[Any], torch.Tensor]] = {
    "global name": of_global,
    "global dict": lambda _: TABLES.setdefault("table", torch.arange(4.0)),
    "global list": of_list,
    "object": of_object,
    "class": of_class,
    "closure": closure(),
    "default": of_default,
    "cache": lambda _: unlimited(),
    "limited cache": lambda _: nested()[1]["table"],
    "cached method": lambda model: model.computed(),
    "another class": lambda _: Tables.kept.setdefault("table", torch.arange(4.0)),
    "cached static method of another class": lambda _: Tables.computed(),
    "only object of another class": lambda _: Tables.single().table,
    "function": of_function,
    "ordered dict": lambda _: ORDERED.setdefault(1, torch.arange(4.0)),
    "default dict": lambda _: MADE[1],
    "another module": lambda _: HOLDER(),
    "module of the class": lambda model: model.holder(),
    "derived dict": lambda _: MISSING[1],
    "object without a dict": lambda _: SLOTTED.setdefault(1, Slotted()).table,
    "set": of_set,
    "tuple": lambda model: PAIR[0].get(model),
    "method": lambda model: BOUND(model),
    "partial": lambda model: PARTIAL(model),
}


@pytest.mark.parametrize("place", PLACES)
def test_eager_answers_with_real_tensors_after_a_compile(
    compiled: Callable[..., trtcache.CompiledModule], place: str
) -> None:
    """The code's own cache is as it was, and is filled by eager again."""
    model = Cached(PLACES[place]).eval()
    module = compiled(model, (X,))
    answer = model(X)
    assert type(answer) is torch.Tensor
    torch.testing.assert_close(module(X), answer)
    assert TABLES["kept"] == 1


def test_real_tensors_in_a_cache_stay(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A cache that was filled before the compile is not cleared."""
    unlimited.cache_clear()
    model = Cached(PLACES["cache"]).eval()
    table = unlimited()
    compiled(model, (X,))
    assert unlimited() is table


class KeyedTable(nn.Module):
    """Has a table, and notes beside it for which length it was made."""

    table, length = torch.zeros(1), 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the table, in the class."""
        if x.shape[1] != KeyedTable.length:
            KeyedTable.table, KeyedTable.length = torch.arange(x.shape[1]) * 1.0, x.shape[1]
        return x + KeyedTable.table


LENGTH = 1


class OwnTable(nn.Module):
    """Has a table of its own, and notes its length in a global name."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the table."""
        global LENGTH
        if x.shape[1] != LENGTH:
            self.table, LENGTH = torch.arange(x.shape[1]) * 1.0, x.shape[1]
        return x + self.table


@pytest.mark.filterwarnings("ignore:The tensor attribute self.table was assigned:UserWarning")
@pytest.mark.parametrize("kind", [KeyedTable, OwnTable])
@pytest.mark.parametrize("direct", ["off", "on"])
def test_what_a_cache_was_filled_for_is_restored_with_it(
    compiled: Callable[..., trtcache.CompiledModule], kind: type[nn.Module], direct: str
) -> None:
    """Or eager would take the old table for that of the new length."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    for _ in range(2):
        model = kind().eval()
        model(torch.zeros(1, 1))
        if kind is KeyedTable:
            thread.start()
        try:
            compiled(model, (X,), direct=direct)
        finally:
            if kind is KeyedTable:
                stop.set()
                thread.join()
                thread = threading.Thread(target=stop.wait)
        assert torch.equal(model(X), X + torch.arange(4.0))


class Arrays(nn.Module):
    """Counts its calls in objects that are no containers of Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.numpys, self.pythons, self.bytes = np.ones(2), array("d", [1.0]), bytearray(b"1")
        self.names = argparse.Namespace(calls=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the number of calls."""
        self.numpys += 1
        self.pythons[0] += 1
        self.bytes.append(1)
        self.names.calls += 1
        return x + float(self.numpys[0]) + self.pythons[0] + len(self.bytes) + self.names.calls


def test_a_compile_does_not_count_as_a_call(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Arrays and namespaces are as they were, as other attributes are."""
    for direct in ("off", "on", "on"):
        model = Arrays().eval()
        compiled(model, (X,), direct=direct)
        assert torch.equal(model(X), Arrays()(X))


class Draws(nn.Module):
    """Multiplies by a random number of the ``random`` module if ``draws`` is set."""

    draws = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by a number."""
        return x * random.random() if self.draws else x * 1.0  # nothing is secret


def test_an_export_after_a_replay_draws_the_same_numbers(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A miss of direct mode takes none away."""
    compiled(Draws().eval(), (X,), direct="on")
    model = Draws().eval()
    model.draws = True
    random.seed(0)
    expected = model(X)
    random.seed(0)
    module = compiled(model, (X,), direct="on")
    assert torch.equal(module(X), expected)


class Swaps(nn.Module):
    """Assigns ``data`` of the tensors in ``swaps``, and multiplies by its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.weight, self.average = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by the weight."""
        for one, other in self.swaps:
            one.data = other.data
        return x * self.weight


def test_an_assignment_of_data_is_refused_after_a_replay_too(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Its operations are those of the model without it."""
    compiled(Swaps().eval(), (X,), direct="on")
    model = Swaps().eval()
    model.swaps.append((model.weight, model.average))
    with pytest.raises(ExportError, match=r"forward assigns \.?data"):
        compiled(model, (X,), direct="on")
    assert torch.equal(model.weight, torch.ones(4))  # the model is as it was


BUILT: set[int] = set()
SPACE = SimpleNamespace(tables={})
FILLED: dict[int, torch.Tensor] = {}


@functools.cache
def fill(length: int) -> None:
    """Fill a table of another place."""
    FILLED[length] = torch.arange(length) * 1.0


def of_set(_: Any) -> torch.Tensor:
    """Keep the lengths of tables in a set."""
    if 4 not in BUILT:
        ORDERED[4] = torch.arange(4.0)
        BUILT.add(4)
    return ORDERED[4]


def of_cached_fill(_: Any) -> torch.Tensor:
    """Let a cached function fill the table."""
    fill(4)
    return FILLED[4]


@pytest.mark.parametrize("get", [of_set, of_cached_fill, lambda _: SPACE.tables.setdefault("table", torch.arange(4.0))])
def test_what_belongs_to_a_cache_is_restored_with_it(
    compiled: Callable[..., trtcache.CompiledModule], get: Callable[[Any], torch.Tensor]
) -> None:
    """A set of lengths, a cached function that fills a table, and a dict in a namespace."""
    model = Cached(get).eval()
    module = compiled(model, (X,))
    answer = model(X)
    assert type(answer) is torch.Tensor
    torch.testing.assert_close(module(X), answer)


PENDING: dict[str, int] = {}
REGISTRY: dict[str, Any] = {}


class Registers(nn.Module):
    """Imports a plugin, which registers a function, and notes its size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call the registered function."""
        if self.size is None:
            plugin = types.ModuleType("plugin_of_a_test")
            plugin.__file__ = __file__
            exec("def double(x):\n    return x * 2", vars(plugin))  # noqa: S102  # as an import does
            sys.modules[plugin.__name__] = plugin
            REGISTRY["double"] = plugin.double
            PENDING["request"] = 1
            self.size = (3,)
        result: torch.Tensor = REGISTRY["double"](x)
        return result

    size: tuple[int, ...] | None = None


def test_what_an_import_has_registered_stays(
    compiled: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not done again, and nothing tells what it has added from other additions."""
    monkeypatch.setitem(sys.modules, "plugin_of_a_test", None)  # type: ignore[arg-type]  # it is not there afterwards
    del sys.modules["plugin_of_a_test"]
    model = Registers().eval()
    compiled(model, (X,))
    assert (list(REGISTRY), PENDING, model.size) == (["double"], {"request": 1}, None)
    assert torch.equal(model(X), X * 2)


def test_what_other_threads_add_meanwhile_stays(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Only what has tensors of the export is taken away."""
    PENDING.clear()
    ORDERED.clear()

    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=PENDING.__setitem__, args=("request", 1))
            thread.start()
            thread.join()
            return x + ORDERED.setdefault(1, torch.arange(4.0))

    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        compiled(Waits().eval(), (X,))
    finally:
        stop.set()
        thread.join()
    assert (PENDING, list(ORDERED)) == ({"request": 1}, [])


def test_a_model_with_a_tensor_on_the_meta_device(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """One that is not used does not matter."""
    model = nn.Linear(4, 4).eval()
    model.register_buffer("unused", torch.empty(2, device="meta"))
    torch.testing.assert_close(compiled(model, (X,))(X), model(X))


CALLS, NORM = torch.zeros(4), nn.BatchNorm1d(4)


class CountsInGlobal(nn.Module):
    """Writes to tensors beside it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count, and normalize in training mode."""
        CALLS.add_(1)
        return NORM(x) + CALLS  # type: ignore[no-any-return]  # torch's


def test_a_refused_export_leaves_tensors_beside_the_model(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """It writes to them before it refuses the program."""
    with pytest.raises(ExportError):
        compiled(CountsInGlobal(), (X,))
    assert CALLS.tolist() == [0.0] * 4
    assert NORM.num_batches_tracked is not None
    assert int(NORM.num_batches_tracked) == 0


class Sized:
    """A table whose length is noted in an object of its own."""

    def __init__(self) -> None:
        self.table, self.note = torch.zeros(1), SimpleNamespace(length=1)

    def get(self, length: int) -> torch.Tensor:
        """Return the table for a length."""
        if length > self.note.length:
            self.table, self.note.length = torch.arange(length) * 1.0, length
        return self.table[:length]


SIZED = Sized()


class UsesSized(nn.Module):
    """Adds the table of an object."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add it, and note the length elsewhere, too."""
        global LONGEST
        LONGEST = x.shape[1]
        return x + SIZED.get(LONGEST)


LONGEST = 0


def test_objects_of_an_object_are_restored_with_it(
    compiled: Callable[..., trtcache.CompiledModule], caplog: pytest.LogCaptureFixture
) -> None:
    """Or the old table would be taken for that of the new length; while a thread runs, a warning names others."""
    global LONGEST
    module = compiled(UsesSized(), (X,))
    torch.testing.assert_close(UsesSized()(X), module(X))
    SIZED.table, SIZED.note.length, LONGEST = torch.zeros(1), 1, 0
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        compiled(UsesSized(), (X,))
    finally:
        stop.set()
        thread.join()
    assert f"LONGEST of the module {__name__}: it has changed during the export" in caplog.text
    assert "length of a SimpleNamespace" not in caplog.text
    assert torch.equal(SIZED.table, torch.zeros(1))
    assert SIZED.note.length == 1


class Creating(OrderedDict[str, Any]):
    """Creates an object for each look-up, as transformers' ``ACT2FN`` does."""

    def __getitem__(self, key: str) -> Any:
        """Return a new module."""
        return super().__getitem__(key)()

    def copy(self) -> Creating:
        """Return another one, with what look-ups return."""
        return Creating(self.items())


ACTIVATIONS = Creating(relu=nn.ReLU, gelu=nn.GELU)


class LooksUp(nn.Module):
    """Fills a table beside it, so that everything is restored, and looks activations up."""

    def __init__(self) -> None:
        super().__init__()
        self.activations = Creating(tanh=nn.Tanh, relu=nn.ReLU)
        self.activations.move_to_end("tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Look two up."""
        result: torch.Tensor = self.activations["tanh"](ACTIVATIONS["relu"](x)) + of_global(self)
        return result


def test_what_a_dict_holds_is_kept_not_what_its_look_ups_create(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """In the order of the dict; the next model is created from it."""
    global GLOBAL_TABLE
    GLOBAL_TABLE, model = None, LooksUp()
    compiled(model, (X,))
    assert list(dict.values(ACTIVATIONS)) == [nn.ReLU, nn.GELU]
    assert dict(dict.items(model.activations)) == {"relu": nn.ReLU, "tanh": nn.Tanh}
    assert list(model.activations) == ["relu", "tanh"]
    torch.testing.assert_close(model(X), LooksUp()(X))
