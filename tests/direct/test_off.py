"""Direct mode is off, with a reason, for models that it does not support."""

from __future__ import annotations

import functools
import io
import logging
import os
import platform
import random
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import trtcache
from tests.direct import counting
from tests.direct.package import X
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.globals import Globals
from trtcache.frontends.direct.manifest import refuse_regions
from trtcache.frontends.direct.refusals import Refusals
from trtcache.frontends.direct.uses import uses
from trtcache.frontends.direct.walk import Walk
from trtcache.lowering.capture import export

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 0
LOG = logging.getLogger(__name__)
STATE: dict[str, int] = {"calls": 0}
NAMES = {"a", "bb", "ccc"}
NOWHERE: dict[str, Any] = {"__name__": "nowhere", "__file__": "/nowhere.py", "torch": torch}
exec("def from_nowhere(x):\n    return torch.neg(x)\n", NOWHERE)  # noqa: S102  # code made by exec is what this is about


class Calls(nn.Module):
    """Does what a function does, with attributes of any kind."""

    def __init__(self, does: Callable[[Any, torch.Tensor], torch.Tensor], **attributes: Any) -> None:
        super().__init__()
        self.does = does
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.does(self, x)


def test_modules_with_too_many_objects_are_not_described_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several attributes share is described for each: that took half a minute in a process with many modules."""
    crowded = ModuleType("crowded")
    crowded.first = crowded.second = [[number] for number in range(15_000)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "crowded", crowded)
    found = Globals(Walk(nn.Identity()))
    with pytest.raises(UnstableError, match=r"second of crowded .* modules have more than 20000 objects"):
        found._describe_all_attributes({"crowded"})


class Item:
    """An object of a class of its own."""


class Hostile:
    """An object whose attributes raise."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise OSError("hostile")


def _counted(_: Any, x: torch.Tensor) -> torch.Tensor:
    global COUNT
    COUNT += 1
    return x + 1


def _noted(_: Any, x: torch.Tensor) -> torch.Tensor:
    STATE["calls"] += 1
    return x + 1


def _logged(_: Any, x: torch.Tensor) -> torch.Tensor:
    items: list[Any] = [Item()]
    items.append(items)
    LOG.info("%s", items)
    return x + 1


def _handed_on(_: Any, x: torch.Tensor) -> torch.Tensor:
    module = counting
    module.COUNT = module.COUNT + 1
    return x + module.COUNT


def _evaluated(_: Any, x: torch.Tensor) -> torch.Tensor:
    return eval("x + 1")  # type: ignore[no-any-return]  # noqa: S307


def _resized(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x + Image.new("L", (2, 2)).getbbox()[2] if False else x + len(Image.new("L", (2, 2)).tobytes())


def _counter() -> Callable[[Any, torch.Tensor], torch.Tensor]:
    count = 0

    def does(_: Any, x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x + 1

    return does


def _remembered(_: Any, x: torch.Tensor, seen: list[int] = [0]) -> torch.Tensor:  # noqa: B006
    seen.append(1)
    return x + 1


def _many(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x + len([name for name in os.environ if name.startswith("NOTHING")])


class Key:
    """A key whose hash changes with its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number


class Table(dict[Any, Any]):
    """A dictionary of a class of its own."""


def _lost_key() -> Table:
    table, key = Table(), Key(1)
    table[key] = 1.0
    key.number = 2
    return table


OFF: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a clock": (lambda: Calls(lambda _, x: x + (time.time() > 0)), "module time"),
    "a clock by Python's library": (
        lambda: Calls(lambda _, x: x + len(time.strftime("%Y", time.gmtime()))),
        "module time",
    ),
    "a random number": (lambda: Calls(lambda _, x: x + int(random.random() * 0)), "random"),
    "a random number of NumPy": (lambda: Calls(lambda _, x: x + int(np.random.rand() * 0)), "numpy.random"),
    "a file": (lambda: Calls(lambda _, x: x + len(Path("/proc/version").read_text())), "open"),
    "a folder": (lambda: Calls(lambda _, x: x + len(os.getcwd())), "getcwd"),  # noqa: PTH109
    "a process": (lambda: Calls(lambda _, x: x + os.getpid() * 0), "getpid"),
    "another program": (lambda: Calls(lambda _, x: x + len(subprocess.run(["true"], check=True).args)), "calls"),
    "a thread": (lambda: Calls(lambda _, x: threading.Thread(target=list).start() or x), "calls"),
    "a socket": (lambda: Calls(lambda _, x: x + len(socket.gethostname())), "gethostname"),
    "all variables": (lambda: Calls(_many), "environment"),
    "an order of texts": (lambda: Calls(lambda _, x: x + len(next(iter(NAMES)))), "set"),
    "a hash": (lambda: Calls(lambda _, x: x + hash("text") % 7), "hash"),
    "a count of threads": (lambda: Calls(lambda _, x: x + threading.active_count()), "active_count"),
    "a limit of the interpreter": (lambda: Calls(lambda _, x: x + sys.getrecursionlimit()), "the loaded modules"),
    "the machine's name": (lambda: Calls(lambda _, x: x + len(platform.node())), "platform"),
    "a clock that is handed on": (
        lambda: Calls(lambda _, x: x + next(iter(time.time, None)) % 7),
        "module time",
    ),
    "a clock that is kept": (lambda: Calls(lambda _, x: x, kept=functools.partial(time.time)), "kept"),
    "lines of code": (lambda: Calls(lambda _, x: x + Calls.forward.__code__.co_firstlineno), "co_firstlineno"),
    "a gradient": (lambda: Calls(lambda _, x: x + (x.grad is None)), "reads grad"),
    "an operator of others": (lambda: Calls(lambda _, x: x if x.dim() else torch.ops.others.one(x)), "not torch's own"),
    "evaluated code": (lambda: Calls(_evaluated), "eval"),
    "a C extension": (lambda: Calls(_resized), "PIL"),
    "code of no module": (lambda: Calls(lambda _, x: NOWHERE["from_nowhere"](x)), "NOWHERE"),
    "a global that it sets": (lambda: Calls(_counted), "COUNT"),
    "a global that it changes": (lambda: Calls(_noted), "STATE"),
    "a module that it changes": (lambda: Calls(_handed_on), "COUNT"),
    "a closure that it changes": (lambda: Calls(_counter()), "the export changes attribute does"),
    "a default that it changes": (lambda: Calls(_remembered), "the export changes attribute does"),
    "a lock's owner": (lambda: Calls(lambda _, x: x, kept=threading.local()), "off: attribute kept cannot be compared"),
    "an own object in a logged list, which contains itself": (lambda: Calls(_logged), "it logs an object of its own"),
    "an iterator": (lambda: Calls(lambda _, x: x, kept=iter([1])), "off: attribute kept cannot be compared"),
    "a stream": (lambda: Calls(lambda _, x: x, kept=io.BytesIO()), "off: attribute kept cannot be compared"),
    "a generator of random numbers": (lambda: Calls(lambda _, x: x, kept=torch.Generator()), "kept"),
    "a module that is no submodule": (lambda: Calls(lambda _, x: x, kept=[nn.Linear(1, 1)]), "kept.0"),
    "a sparse tensor": (lambda: Calls(lambda _, x: x, kept=X.to_sparse()), "kept"),
    "an object that cannot be looked at": (lambda: Calls(lambda _, x: x, kept=Hostile()), "Hostile"),
    "a key that had another hash": (lambda: Calls(lambda _, x: x, kept=_lost_key()), "keys had other hashes"),
    "a graph": (lambda: torch.fx.symbolic_trace(nn.Linear(4, 4)), "_graph"),
}


@pytest.mark.parametrize("name", OFF)
def test_unsupported_models_turn_direct_mode_off(name: str, interpreter: str, tmp_path: Path) -> None:
    """The model is compiled on the slow path, and the report has the reason."""
    made, word = OFF[name]
    module = trtcache.compile(made(), (X,), backend=interpreter, cache=tmp_path / "cache", direct="on")
    assert module.report.direct.startswith("off: "), module.report.direct
    assert word in module.report.direct
    assert module.report.route in {"lowered", "alias"}


def _sorts(one: str, other: str) -> list[str]:
    words = {one, other}
    return sorted(words)


def _counts(given: str) -> int:
    return len(sorted(given))


def test_an_own_function_of_sets_is_refused() -> None:
    """Python's is known not to show the order of one."""
    walk = Walk(nn.Identity())
    for code, space in ((_sorts.__code__, {}), (_counts.__code__, {}), (_counts.__code__, {"sorted": list})):
        Refusals().check(code, uses(code), space, walk)
    with pytest.raises(UnstableError, match="another sorted than Python"):
        Refusals().check(_sorts.__code__, uses(_sorts.__code__), {"sorted": list}, walk)


def test_a_program_with_regions_is_refused() -> None:
    """torch._dynamo reads the functions of such an operator, which do not run where they are seen."""
    branching = Calls(lambda _, x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)))
    with pytest.raises(ValueError, match="the operator cond"):
        refuse_regions(export(branching, (X,), {}, None))


def test_an_audit_hook_in_c_turns_direct_mode_off() -> None:
    """Only where no library has set one; Python shows neither."""
    code = """
        import ctypes
        from trtcache.frontends.direct.surroundings import _refuse_audit_hooks
        from trtcache.frontends.direct.errors import UnstableError
        _refuse_audit_hooks()
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.py_object, ctypes.c_void_p)
        hook = kind(lambda event, arguments, data: 0)
        ctypes.pythonapi.PySys_AddAuditHook(hook, None)
        try:
            _refuse_audit_hooks()
        except UnstableError as error:
            print(error, flush=True)
        import gc
        gc.collect()
        functions = [one for one in gc.get_objects() if type(one) is type(_refuse_audit_hooks)]
        left = [one for one in functions if one.__qualname__.startswith("_find_audit_hooks.")]
        print(f"left: {left}", flush=True)
        import os
        os._exit(0)  # the interpreter would call it when it is gone
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the functions for audited events cannot be found" in done.stdout
    assert "left: []" in done.stdout  # the hook that looks for others is gone
