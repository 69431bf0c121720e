"""torch_tensorrt's own ``DiskEngineCache``, from a wheel whose other files are not needed, nor the 5.7 GB it asks for.

``make bench`` unpacks the wheel into ``.venv``. The one file of the cache is executed as it is; the two modules that it
imports only for the type of an input and for the names of settings are stood in for, because they import TensorRT. Its
key needs those, and is measured by ``benchmarks.torch_tensorrt_caches``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FILES = Path(sys.prefix) / "torch-tensorrt-files"
_SOURCE = FILES / "torch_tensorrt" / "dynamo" / "_engine_cache.py"
_KEY = "key"


def is_there() -> bool:
    """Say whether the wheel was unpacked."""
    return _SOURCE.exists()


def version() -> str:
    """Return the wheel's version."""
    (found,) = FILES.glob("torch_tensorrt*.dist-info")
    return found.name.removesuffix(".dist-info").rpartition("-")[2]


def _loaded() -> Any:
    """Return the module of the cache."""
    stood_in: dict[str, dict[str, object]] = {
        "torch_tensorrt": {},
        "torch_tensorrt._Input": {"Input": object},
        "torch_tensorrt.dynamo": {},
        "torch_tensorrt.dynamo._settings": {"_SETTINGS_TO_BE_ENGINE_INVARIANT": (), "CompilationSettings": dict},
    }
    before = {name: sys.modules.get(name) for name in stood_in}
    spec = importlib.util.spec_from_file_location("benchmarked_engine_cache", _SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        for name, values in stood_in.items():
            sys.modules[name] = ModuleType(name)
            vars(sys.modules[name]).update(values)
        spec.loader.exec_module(module)
    finally:
        for name, other in before.items():
            del sys.modules[name]
            if other is not None:
                sys.modules[name] = other
    return module


class DiskEngineCache:
    """torch_tensorrt's ``DiskEngineCache``: pickled; neither hashed nor flushed."""

    def __init__(self, folder: Path, content: bytes) -> None:
        """Open an empty cache that has room."""
        self._cache, self._content = _loaded().DiskEngineCache(str(folder), 1 << 40), content

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return an insert and a check, as torch_tensorrt calls them."""
        return {"put": self._put, "get": self._get}

    def _put(self) -> None:
        self._cache.insert(_KEY, (self._content, ["x"], ["output0"], [], {}, False, False, {}))

    def _get(self) -> None:
        assert len(self._cache.check(_KEY)[0]) == len(self._content)
