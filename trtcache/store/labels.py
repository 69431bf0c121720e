"""Labels of entries: kinds of companions, and validation of user-supplied kinds, names and provenance.

Labels are validated before a build: a header that cannot be written would waste it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trtcache.errors import CanonicalizationError

COMPANIONS = frozenset({"direct", "direct-why", "memo", "runtime_cache", "timing_cache"})
"""Key aliases, manifests and miss reasons of direct mode, and TensorRT's timing and runtime caches."""

_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_companion(kind: str) -> bool:
    """Return whether entries of this kind accompany engines; kinds of custom builders count as engines."""
    return kind in COMPANIONS


def check_kind(kind: object) -> None:
    """Validate a kind, such as ``aot_inductor``.

    Raises:
        CanonicalizationError: it is not 1 to 64 lower-case letters, digits, dots, underscores and hyphens.
    """
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first"
        raise CanonicalizationError("kind", f"{kind!r:.100} is not {rule}")


def check_parts(parts: object) -> None:
    """Validate that the parts are a mapping; names and values are checked when they are encoded.

    Raises:
        CanonicalizationError: it is not a mapping.
    """
    if not isinstance(parts, Mapping):
        raise CanonicalizationError("parts", f"expected a mapping of names to values, got {type(parts).__name__}")


def check_name(name: object) -> None:
    """Validate a name: None or any Unicode text.

    Raises:
        CanonicalizationError: it is neither.
    """
    if name is not None:
        _check_text(name, "name")


def check_provenance(provenance: object) -> None:
    """Validate that the provenance maps text to text.

    Raises:
        CanonicalizationError: it, a name or a value has another type.
    """
    if not isinstance(provenance, Mapping):
        raise CanonicalizationError("provenance", f"expected a mapping of text, got {type(provenance).__name__}")
    for name, text in provenance.items():
        _check_text(name, "a name in provenance")
        _check_text(text, f"provenance[{name!r}]")


def _check_text(text: object, where: str) -> None:
    if not isinstance(text, str):
        raise CanonicalizationError(where, f"expected text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CanonicalizationError(where, f"not valid Unicode: {error.reason}") from error
