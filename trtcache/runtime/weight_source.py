"""What a refit was given: a module, its state_dict, or a file of weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch

from trtcache.errors import RefitError
from trtcache.frontends.checkpoint import read_weights
from trtcache.lowering.contents import Content

if TYPE_CHECKING:
    from collections.abc import Callable

Weights: TypeAlias = "torch.nn.Module | Mapping[str, torch.Tensor] | str | os.PathLike[str]"
"""What can be put into a compiled module: a module, its state_dict, or the path of a file of weights."""

_EXTRA_STATE = "_extra_state"  # torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX


@dataclass(frozen=True, slots=True)
class Given:
    """Weights by a model's names for them.

    Attributes:
        state: the weights.
        module: the module that has them, if one was given.
        is_file: whether they were read from a file, and may then be brought to the engine's device.
    """

    state: Mapping[str, torch.Tensor]
    module: torch.nn.Module | None = None
    is_file: bool = False

    @classmethod
    def of(cls, weights: Weights, *, known: frozenset[str], constants: Mapping[str, Content]) -> Given:
        """Return what was given.

        Args:
            weights: a module, its state_dict, or a path.
            known: every name that the compiled model has.
            constants: what the program's own constants are, by the model's names for them.

        Raises:
            TypeError: it is neither.
            RefitError: it has other constants than the program, or a name that is no text.
            WeightsFileError: the file cannot be read.
        """
        module, is_file = None, isinstance(weights, (str, os.PathLike))
        if isinstance(weights, torch.nn.Module):
            module = weights
            _check_constants(constants, lambda name: _attribute(module, name))
            state = weights.state_dict(keep_vars=True)
        elif isinstance(weights, (str, os.PathLike)):
            state = read_weights(Path(weights))
            _check_constants(constants, state.get)
        elif isinstance(weights, Mapping):
            state = dict(weights)
            if strange := tuple(repr(name) for name in state if not isinstance(name, str)):
                raise RefitError(unexpected=strange)
        else:
            raise TypeError(f"refit takes a path, a torch.nn.Module or its state_dict, not {type(weights).__name__}")
        # What a module's get_extra_state returned is no weight.
        taken = {name: one for name, one in state.items() if name in known or not name.endswith(_EXTRA_STATE)}
        return cls(taken, module, is_file)


def _check_constants(constants: Mapping[str, Content], value_of: Callable[[str], object]) -> None:
    changed = [
        f"{name} (a constant of the program; compile the new model instead)"
        for name, content in constants.items()
        if isinstance(value := value_of(name), torch.Tensor) and Content.of(value) != content
    ]
    if changed:
        raise RefitError(mismatched=tuple(changed))


def _attribute(module: torch.nn.Module | None, name: str) -> object:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
