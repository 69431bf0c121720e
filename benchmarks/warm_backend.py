"""A backend that builds in milliseconds, so that a thousand cells of ``trtcache warm`` are in a cache soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from tests.backends.interpreter import Interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping


class Instant(Interpreter):
    """The interpreter of the tests, whose entries are those of all processes; they are found and not run."""

    name: ClassVar[str] = "instant"

    def toolchain(self, device: str) -> Mapping[str, object]:  # noqa: ARG002  # the protocol's signature
        """Return the version of torch."""
        return {"torch": torch.__version__}
