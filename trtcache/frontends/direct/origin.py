"""Whose code it is: a build's (torch, NumPy, Python, trtcache), which its version stands for, or anybody else's."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import trtcache

if TYPE_CHECKING:
    from types import ModuleType

_NEEDED_BY_TORCH = frozenset(
    ("_distutils_hack", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "pkg_resources")
) | {"setuptools", "sympy", "triton"}
"""What torch imports and runs when it exports. A model that calls it itself is not covered."""

_PYTHON = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # compared with names of files as they are in code
_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120
_OURS = str(Path(str(trtcache.__file__)).parent) + os.sep

TORCH, PYTHON, NEEDED, MODEL = "torch", "python", "needed", "model"


@functools.lru_cache(maxsize=16384)
def file_owner(filename: str) -> str:
    """Return whose code a file has; what is no file, such as ``<string>``, is the model's."""
    if filename.startswith((_TORCH, _OURS, "<eval_with_key>")):
        return TORCH
    if filename.startswith("<frozen "):
        return PYTHON
    for site in ("site-packages", "dist-packages"):
        _, match, below = filename.partition(f"{os.sep}{site}{os.sep}")
        if match:
            top = below.partition(os.sep)[0].removesuffix(".py")
            known = {"numpy": PYTHON, "typing_extensions": PYTHON, "functorch": TORCH, "torchgen": TORCH}
            return known.get(top) or (NEEDED if top in _NEEDED_BY_TORCH else MODEL)
    return PYTHON if filename.startswith(_PYTHON) else MODEL


def file_is_build(filename: str) -> bool:
    """Return whether a version stands for a file: torch's, NumPy's, Python's or ours."""
    return file_owner(filename) in {TORCH, PYTHON}


def module_owner(name: str) -> str:
    """Return whose a loaded module is, by its file: a model's own can be called as one of Python's."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if isinstance(file, str) and name.partition(".")[0] != "torch":
        return file_owner(file)
    if isinstance(file, str):  # torch.ops calls its file _ops.py
        return file_owner(file) if os.sep in file else TORCH
    if getattr(getattr(module, "__spec__", None), "origin", None) in {"built-in", "frozen"}:
        return PYTHON
    is_in_c = file is None and name.startswith(("torch._C", "torch._VF", "torch.ops", "torch.classes", "torch.cuda."))
    return TORCH if module is not None and is_in_c else MODEL


def is_build_module(name: object) -> bool:
    """Return whether a version stands for all that a module defines."""
    return isinstance(name, str) and module_owner(name) in {TORCH, PYTHON}


def module_with(namespace: dict[str, Any]) -> ModuleType | None:
    """Return the module that a function's globals are; None for globals that are no module's."""
    module = sys.modules.get(str(namespace.get("__name__")))
    return module if module is not None and getattr(module, "__dict__", None) is namespace else None


def lookup(module: str, qualname: str) -> object:
    """Return what a module has under a qualified name; None if that leads nowhere. Nothing is imported."""
    value: object = sys.modules.get(module)
    for step in qualname.split("."):
        try:
            value = vars(value)[step]
        except (KeyError, TypeError):
            return None
    return value


def is_installed(name: str) -> bool:
    """Return whether a module is of an installed distribution, not of somebody's own files."""
    return f"{os.sep}site-packages{os.sep}" in str(getattr(sys.modules.get(name), "__file__", None))
