"""Digests of the Python code that a model runs.

Code can ask for what only an export has: its modes, its flags, the frames of its callers. So operations in a replay are
those of an export only for code whose operations were compared with one. Code that is new or has changed is a miss.
"""

from __future__ import annotations

import sys
import sysconfig
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.errors import NotComparableError
from trtcache.frontends.direct.export_context import OWN_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_LIBRARY = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = tuple(f"{_LIBRARY}{name}/" for name in ("site-packages", "dist-packages"))
_DIGEST_BYTES = 16


class ExecutedCode:
    """Collects the functions that a call runs, in this thread.

    Those of torch, trtcache and the standard library are left out: their versions are parts of keys.
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}

    def collect(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, and collect what it runs; return its result.

        Raises:
            NotComparableError: a trace function is set.
            Exception: the function raised it.
        """
        python: Any = sys
        get = python.gettrace
        if get() is not None:
            raise NotComparableError("a trace function is set, such as that of a debugger")
        note = self._note  # one object, by which it is found again
        python.gettrace = lambda: None  # as in an export
        sys.settrace(note)
        try:
            result = function(*args, **kwargs)
            is_set = get() is note
        finally:
            sys.settrace(None)
            python.gettrace = get
        if not is_set:
            raise NotComparableError("forward sets a trace function")
        return result

    def _note(self, frame: FrameType, _event: str, _value: Any) -> None:
        code = frame.f_code
        self._codes[id(code)] = code

    @cached_property
    def by_digest(self) -> dict[str, CodeType]:
        """The code objects by their digests."""
        return {digest(code): code for code in self._codes.values() if not _is_known(code)}

    def describe_change(self, known: set[str]) -> str:
        """Describe code that is not among that of the digests; return '' if there is none."""
        for one, code in self.by_digest.items():
            if one not in known:
                return f"code has changed, or did not run before: {code.co_qualname} of {Path(code.co_filename).name}"
        return ""


def digest(code: CodeType) -> str:
    """Return the digest of a code object: of what it does, without its file and its line numbers."""
    return hash_bytes(repr(_describe(code)).encode(errors="surrogatepass")).hex()[: 2 * _DIGEST_BYTES]


def _describe(code: CodeType) -> tuple[Any, ...]:
    return (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_code,
        code.co_exceptiontable,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        *map(_describe_constant, code.co_consts),
    )


def _describe_constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _describe(value)
    if isinstance(value, tuple):
        return tuple(map(_describe_constant, value))
    if isinstance(value, frozenset):  # whose order is that of hashes
        return sorted(map(repr, value))
    return repr(value)


def _is_known(code: CodeType) -> bool:
    path = code.co_filename
    return path.startswith(OWN_FOLDERS) or (path.startswith((_LIBRARY, "<frozen ")) and not path.startswith(_INSTALLED))
