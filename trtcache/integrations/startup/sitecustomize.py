"""Run by Python as it starts, where ``trtcache run`` has put this folder on ``PYTHONPATH``.

It leaves no trace on ``sys.path``, and runs the ``sitecustomize`` that would have been run without it.
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
        return  # another Python that the program starts, which has no trtcache
    install_for_run()


_leave()
try:
    _run_the_next()
finally:
    _install()  # last, so that it comes before the import hooks of others, and hands on to them
