"""A program that was not exported this time, as what a memo leads from."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Collection

    from trtcache.config.stat_fingerprint import StatFingerprint
    from trtcache.digests import Digest
    from trtcache.direct.manifest import Manifest
    from trtcache.direct.walk import Walk


class DirectSource:
    """The program that a manifest tells, with the weights of the model at hand.

    Attributes:
        label: what people call it.
        digest: what the exported program's was.
        specs: how torch flattens arguments and output.
        forward: the signature of the model.
    """

    part: ClassVar[str] = "exported"
    whole: ClassVar[None] = None
    parameters: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, manifest: Manifest, walk: Walk, model: torch.nn.Module, label: str) -> None:
        """Read how arguments are nested.

        Raises:
            ValueError: a type among them is not known to torch here, or the model is on another device.
        """
        self._state = walk.state
        self.label = label
        self.digest: Digest = manifest.digest
        try:
            self.device = torch.device(manifest.device)
            self.specs = (pytree.treespec_loads(manifest.in_spec), pytree.treespec_loads(manifest.out_spec))
        except (LookupError, TypeError, NotImplementedError, AttributeError, RuntimeError) as error:
            raise ValueError(f"its device, or how its arguments are nested, is not known here: {error}") from error
        self.forward = inspect.signature(model.forward)

    def tensors(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights by the program's names for them.

        Raises:
            ValueError: the model has none of that name.
        """
        if missing := sorted(name for name in names if name not in self._state):
            raise ValueError(f"it has no weight {', '.join(missing)}")
        return {name: self._state[name] for name in names}

    def expect(self, whole: Digest | None, seen: StatFingerprint | None) -> None:
        """Do nothing: nothing is to be read."""

    def seen(self) -> None:
        """Return None: there is no file."""

    def check(self, whole: Digest | None) -> None:
        """Do nothing: what is in memory is as it was."""
