"""Putting the cache before torch_tensorrt in a running program, and taking it away again."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trtcache.errors import TrtcacheError
from trtcache.integrations.torch_tensorrt.imports import AfterImport
from trtcache.integrations.torch_tensorrt.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.cache import Cache

_logger = logging.getLogger(__name__)

PACKAGE = "torch_tensorrt"
RUN = "TRTCACHE_RUN"
"""Set by ``trtcache run`` to the number of its process, for that process and those that it starts."""

_WRAPPED = ("interpret_module_to_result", "convert_module")


def install(
    *, cache: Cache | str | os.PathLike[str] | None = None, operator_versions: Mapping[str, str] | None = None
) -> None:
    """Make torch_tensorrt take its engines from the cache, whether it is imported already or not.

    A version of torch_tensorrt that trtcache does not know is left alone, with a warning. What was served and built is
    told in one line at exit. A second call replaces the first.

    Args:
        cache: a ``Cache``, a cache directory, or None for what the ``TRTCACHE_*`` variables say.
        operator_versions: versions of custom operators that plugins stand for (``{"mylib::scale": "1"}``); without
            one, a partition that uses such an operator is not cached.

    Raises:
        SettingsError: a ``TRTCACHE_*`` variable has an impossible value.
        StoreError: ``cache`` names a directory that cannot be a cache.
    """
    from trtcache.cache import Cache

    uninstall()
    opened = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    Installation(opened, dict(operator_versions or {})).begin()


def uninstall() -> None:
    """Leave torch_tensorrt as it was. What it was served stays."""
    for finder in [one for one in sys.meta_path if isinstance(one, Installation)]:
        finder.end()


class Installation(AfterImport):
    """The cache before torch_tensorrt: on ``sys.meta_path`` while it lasts."""

    def __init__(
        self,
        cache: Cache | None = None,
        operator_versions: Mapping[str, str] | None = None,
        *,
        always_tells: bool = False,
    ) -> None:
        """Prepare it; nothing is changed before ``begin``.

        Args:
            cache: what to use; None to open, when it is needed, what the environment describes.
            operator_versions: versions of custom operators that plugins stand for.
            always_tells: whether there is a line at exit even where nothing was converted.
        """
        super().__init__(PACKAGE, self._wrap)
        self._cache = cache
        self._operator_versions = operator_versions or {}
        self._always_tells = always_tells
        self._tally = Tally()
        self._is_left_alone = False

    def begin(self) -> None:
        """Wrap torch_tensorrt now, or as soon as it is imported."""
        atexit.register(self._tell)
        sys.meta_path.insert(0, self)
        package = sys.modules.get(PACKAGE)
        if package is not None:
            self._wrap(package)

    def end(self) -> None:
        """Undo ``begin``."""
        from trtcache.integrations.torch_tensorrt.library import callers

        sys.meta_path.remove(self)
        atexit.unregister(self._tell)
        for module in callers():
            for name in _WRAPPED:
                if getattr(getattr(module, name, None), "trtcache_installation", None) is self:
                    setattr(module, name, getattr(module, name).__wrapped__)

    def _wrap(self, package: Any) -> None:
        """Wrap an imported torch_tensorrt. The program's import never fails because of it."""
        from trtcache.cache import Cache
        from trtcache.integrations.torch_tensorrt.adapter import Adapter
        from trtcache.integrations.torch_tensorrt.library import Library, callers

        try:
            library = Library.of(package)
            adapter = Adapter(library, self._cache or Cache(), self._tally, self._operator_versions)
        except TrtcacheError as error:
            self._is_left_alone = True
            _logger.warning("torch_tensorrt runs without trtcache: %s", error)
            return
        except Exception:  # a torch_tensorrt of a shape that nobody foresaw
            self._is_left_alone = True
            _logger.warning("torch_tensorrt runs without trtcache", exc_info=True)
            return
        for name, method in zip(_WRAPPED, (adapter.interpret, adapter.convert), strict=True):
            original = getattr(library.conversion, name)
            wrapper = functools.wraps(original)(functools.partial(method, original))
            wrapper.trtcache_installation = self  # type: ignore[attr-defined]  # how it is known again
            for module in callers():
                if getattr(module, name, None) is original:
                    setattr(module, name, wrapper)

    def _tell(self) -> None:
        line = self._tally.line()
        if not line and self._always_tells and os.environ.get(RUN) == str(os.getpid()):
            line = self._why_nothing()
        if line and sys.stderr is not None:
            with suppress(OSError, ValueError):  # a closed standard error
                sys.stderr.write(f"trtcache: {line}\n")

    def _why_nothing(self) -> str:
        if self._is_left_alone:
            return "nothing was cached: torch_tensorrt ran without trtcache"
        return f"torch_tensorrt {'converted nothing' if PACKAGE in sys.modules else 'was not imported'}"


def install_for_run() -> None:
    """Install in a process that ``trtcache run`` started, or that such a process started."""
    Installation(always_tells=True).begin()
