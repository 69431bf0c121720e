"""Startup hook that Python runs if ``trtcache run`` put this folder on ``PYTHONPATH``.

It removes itself from ``sys.path``, and runs the ``sitecustomize`` that it shadows.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _leave() -> None:
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]


def _run_the_next() -> None:
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _install() -> None:
    try:
        from trtcache.integrations.torch_tensorrt.installation import install_for_run
    except ImportError:
        return  # another Python started by the program, without trtcache
    install_for_run()


_leave()
try:
    _run_the_next()
finally:
    _install()  # last, so that it precedes other import hooks and delegates to them
