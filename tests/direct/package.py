"""A small package with a model, written into a folder: what a model's own code depends on, and loaded anew."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

NAME = "tinypkg"
X = torch.arange(12.0).reshape(3, 4)

DEEPER = """
SLOPE = 0.5
UNREAD = 7


def bend(x):
    return x * SLOPE
"""

HELPER = """
import functools

import torch

from tinypkg import deeper

GAIN = 2.0
FLAGS = {"shift": True, "nested": {"by": 3.0}}
TABLE = torch.tensor([1.0, 2.0, 3.0, 4.0])
SIZES = [1, 2]


class Policy:
    offset = 1.0

    def apply(self, x):
        return x + self.offset


policy = Policy()


def scaled(x, by=1.5, *, more=0.5):
    return deeper.bend(x) * by * GAIN + more


def adder(amount):
    def add(x):
        return x + amount

    return add


plus = adder(0.25)


@functools.lru_cache
def mode():
    return "plain"


mode()

REGISTRY = {"relu": torch.relu, "tanh": torch.tanh}


def unused(x):
    return x
"""

MODEL = """
import dataclasses
import enum
import functools
import os

import numpy as np
import torch
from torch import nn

from tinypkg import helper


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


@dataclasses.dataclass
class Inner:
    p: float = 0.1


@dataclasses.dataclass
class Config:
    width: int = 4
    inner: Inner = dataclasses.field(default_factory=Inner)


class Square(nn.Module):
    def forward(self, x):
        return x * x


class Cube(nn.Module):
    def forward(self, x):
        return x * x * x


class Block(nn.Module):
    factor = 3.0

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.lin = nn.Linear(config.width, config.width)
        self.act = Square()
        self.dropout = nn.Dropout(config.inner.p)
        self.kind = Kind.ONE
        self.name = "relu"
        self.steps = (1, 2.0)
        self.items = [1.0, 2.0]
        self.table = {"a": 1.0, "b": 2.0}
        self.part = functools.partial(torch.add, alpha=2)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 0.0]), persistent=False)
        self.register_buffer("mean", torch.zeros(4))
        self.index = torch.tensor([3, 2, 1, 0])
        self.view = self.mask[:2]
        self.array = np.ones(4)

    @property
    def slope(self):
        return 1.25

    @staticmethod
    def halved(x):
        return x / 2

    @classmethod
    def doubled(cls, x):
        return x * 2 * cls.factor

    def forward(self, x):
        x = self.dropout(self.act(self.lin(x))) * self.factor + self.config.inner.p * self.slope
        x = self.doubled(self.halved(x)) + self.mask + self.mean + x[:, self.index] * self.steps[1] + self.table["a"]
        x = helper.REGISTRY[self.name](helper.scaled(x)) + helper.plus(x) + helper.TABLE + len(self.items)
        x = self.part(x, x) if self.kind is Kind.ONE else x
        if helper.FLAGS["shift"]:
            x = helper.policy.apply(x) * helper.FLAGS["nested"]["by"] * len(helper.SIZES)
        if os.environ.get("TINY_MODE") == "cubed" or helper.mode() != "plain":
            x = x ** 3
        return x


class Tiny(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config or Config()
        self.first = Block(self.config)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.lin.weight

    def forward(self, x, n=2, *, flag=None, pair=None):
        made = self.second(self.first(x)) * n
        if flag:
            made = made.relu()
        return made if pair is None else made + pair[0] * pair[1]
"""


def write(folder: Path) -> Path:
    """Write the package into a folder, and return its own."""
    package = folder / NAME
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    for name, text in (("deeper", DEEPER), ("helper", HELPER), ("model", MODEL)):
        (package / f"{name}.py").write_text(text.lstrip("\n"))
    return package


def edit(package: Path, name: str, before: str, after: str) -> None:
    """Change the text of a module's file."""
    text = (package / f"{name}.py").read_text()
    assert before in text
    (package / f"{name}.py").write_text(text.replace(before, after, 1))


def load(package: Path, name: str = "model") -> ModuleType:
    """Import the package as a new process does; nothing of it that was imported before is left."""
    for one in [one for one in sys.modules if one == NAME or one.startswith(f"{NAME}.")]:
        del sys.modules[one]
    sys.path.insert(0, str(package.parent))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        return importlib.import_module(f"{NAME}.{name}")
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(package.parent))


def part(name: str) -> Any:
    """Return a loaded module of the package."""
    return sys.modules[f"{NAME}.{name}"]


def tiny() -> torch.nn.Module:
    """Return a new model, in eval mode."""
    torch.manual_seed(0)
    model: torch.nn.Module = part("model").Tiny().eval()
    return model
