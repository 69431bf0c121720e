"""Whose code it is: that of torch and Python, which their versions tell, or a model's own, which is looked at."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from types import ModuleType

_NEEDED = ("_distutils_hack", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "pkg_resources")
_NEEDED_BY_TORCH = frozenset((*_NEEDED, "setuptools", "sympy", "triton"))
"""What torch imports and runs when it exports. A model that calls it itself is not covered."""

_SITES = ("site-packages", "dist-packages")
_PYTHON = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # compared with names of files as they are in code
_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120
_OURS = str(Path(__file__).parents[1]) + os.sep

TORCH, PYTHON, ASKING, NEEDED, MODEL = "torch", "python", "asking", "needed", "model"


@functools.lru_cache(maxsize=8192)
def of_file(filename: str) -> str:
    """Return whose code a file has; what is no file, such as ``<string>``, is the model's."""
    if filename.startswith((_TORCH, _OURS, "<eval_with_key>")):
        return TORCH
    if filename.startswith("<frozen "):
        return PYTHON
    rest = filename.removeprefix(_PYTHON)
    for site in _SITES:
        _, found, below = filename.partition(f"{os.sep}{site}{os.sep}")
        if found:
            return _of_distribution(below.partition(os.sep)[0].removesuffix(".py"))
    return PYTHON if rest != filename else MODEL


def _of_distribution(top: str) -> str:
    if top in {"numpy", "functorch", "torchgen", "typing_extensions"}:
        return PYTHON
    return NEEDED if top in _NEEDED_BY_TORCH else MODEL


def is_trusted(filename: str) -> bool:
    """Say whether a file's code is known by a version: torch's, Python's, NumPy's, or what torch needs."""
    return of_file(filename) != MODEL


@functools.lru_cache(maxsize=8192)
def of_module(name: str) -> str:
    """Return whose a module is: by its file, for a model's own can be called as one of Python's; else by its name."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(file, str):
        return of_file(file)
    top = name.partition(".")[0]
    if top in {"torch", "trtcache"}:
        return TORCH
    if top in {"builtins", "numpy", "typing_extensions"} or (top in sys.stdlib_module_names and top != "__main__"):
        return PYTHON
    return NEEDED if top in _NEEDED_BY_TORCH else MODEL


def is_trusted_module(name: object) -> bool:
    """Say whether what a module of a name defines is known by a version."""
    return isinstance(name, str) and of_module(name) != MODEL


def module_of(namespace: dict[str, Any]) -> ModuleType | None:
    """Return the module that a function's globals are; None for globals that are no module's."""
    found = sys.modules.get(str(namespace.get("__name__")))
    return found if found is not None and getattr(found, "__dict__", None) is namespace else None


def found(module: str, qualname: str) -> object:
    """Return what a module has under a qualified name; None if that leads nowhere. Nothing is imported."""
    value: object = sys.modules.get(module)
    for step in qualname.split("."):
        try:
            value = vars(value)[step]
        except (KeyError, TypeError):
            return None
    return value
