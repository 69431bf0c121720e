"""What people write about an entry, checked before it is built: its kind, its name, its provenance.

A header that cannot be written would cost the whole build, so all of it is refused at the door.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trtcache.errors import CanonicalizationError

_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_kind(kind: object) -> None:
    """Accept ``aot_inductor`` and the like.

    Raises:
        CanonicalizationError: it is not 1 to 64 lower-case letters, digits, dots, underscores and hyphens.
    """
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first"
        raise CanonicalizationError("kind", f"{kind!r:.100} is not {rule}")


def check_parts(parts: object) -> None:
    """Accept a mapping; its names and values are checked as they are encoded.

    Raises:
        CanonicalizationError: it is something else.
    """
    if not isinstance(parts, Mapping):
        raise CanonicalizationError("parts", f"a {type(parts).__name__} where a mapping of names to values belongs")


def check_name(name: object) -> None:
    """Accept None and any Unicode text.

    Raises:
        CanonicalizationError: it is something else.
    """
    if name is not None:
        _check_text(name, "name")


def check_provenance(provenance: object) -> None:
    """Accept a mapping of text to text.

    Raises:
        CanonicalizationError: it, a name or a value is something else.
    """
    if not isinstance(provenance, Mapping):
        raise CanonicalizationError("provenance", f"a {type(provenance).__name__} where a mapping of text belongs")
    for name, text in provenance.items():
        _check_text(name, "a name in provenance")
        _check_text(text, f"provenance[{name!r}]")


def _check_text(text: object, where: str) -> None:
    if not isinstance(text, str):
        raise CanonicalizationError(where, f"a {type(text).__name__} where text belongs")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CanonicalizationError(where, f"not valid Unicode: {error.reason}") from error
