"""An exported program in memory, as what a memo leads from."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.keys.program_digest import devices, exported_digest

if TYPE_CHECKING:
    import inspect
    from collections.abc import Collection, Mapping

    from torch.export import ExportedProgram
    from torch.utils import _pytree as pytree

    from trtcache.config.stat_fingerprint import StatFingerprint
    from trtcache.digests import Digest


class LiveProgram:
    """A program that ``torch.export`` made in this process, with its weights.

    Attributes:
        label: what people call it.
        forward: the signature of the model that it came from, if that is known.
        whole: nothing: what is in memory is not damaged, and no engine that has weights in it gets a memo.
        parameters: none that its tensors do not tell.
    """

    part: ClassVar[str] = "exported"
    whole: ClassVar[None] = None
    parameters: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, program: ExportedProgram, label: str, forward: inspect.Signature | None = None) -> None:
        """Keep the program; nothing is looked at."""
        self._program = program
        self.label = label
        self.forward = forward

    @cached_property
    def digest(self) -> Digest:
        """The digest of all that it says but the values of its weights.

        Raises:
            ValueError: it has none; the message says why.
        """
        return exported_digest(self._program)

    @cached_property
    def device(self) -> torch.device:
        """Where it runs: the one CUDA device that its tensors are on, or the CPU.

        Raises:
            ValueError: they are on several devices.
        """
        found = devices(self._program)
        if len(found) > 1:
            raise ValueError(f"its tensors are on {', '.join(sorted(map(str, found)))}")
        return next(iter(found), torch.device("cpu"))

    @property
    def specs(self) -> tuple[pytree.TreeSpec, pytree.TreeSpec]:
        """How torch flattens the call's arguments and the program's output."""
        call = self._program.call_spec
        return call.in_spec, call.out_spec

    @cached_property
    def _state(self) -> Mapping[str, object]:
        return {**self._program.constants, **self._program.state_dict}

    def tensors(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights by the program's names for them.

        Raises:
            ValueError: it has none of that name.
        """
        found = {name: tensor for name in names if isinstance(tensor := self._state.get(name), torch.Tensor)}
        if missing := sorted(set(names) - set(found)):
            raise ValueError(f"it has no weight {', '.join(missing)}")
        return found

    def expect(self, whole: Digest | None, seen: StatFingerprint | None) -> None:
        """Do nothing: nothing is to be read."""

    def seen(self) -> None:
        """Return None: there is no file."""

    def check(self, whole: Digest | None) -> None:
        """Do nothing: what is in memory is as it was."""
