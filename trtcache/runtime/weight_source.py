"""Weights for a refit: from a module, its state_dict, or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RefitError
from trtcache.frontends.checkpoint import read_weights
from trtcache.lowering.interface import Content

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.runtime.held_tensors import HeldTensors

Weights: TypeAlias = "torch.nn.Module | Mapping[str, torch.Tensor] | str | os.PathLike[str]"
"""Accepted by ``refit``: a module, its state_dict, or the path of a file of weights."""

_EXTRA_STATE = "_extra_state"  # torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX


class SomeWeights(dict[str, torch.Tensor]):
    """Weights by name, without some that calls change and that keep their values."""


@frozen_dataclass
class WeightSource:
    """Weights by a model's names.

    Attributes:
        state: the weights.
        module: the module that owns them, if one was given.
        is_file: whether they come from a file, and may be moved to the engine's device.
        is_part: whether weights that calls change keep their values if they are missing.
    """

    state: Mapping[str, torch.Tensor]
    module: torch.nn.Module | None = None
    is_file: bool = False
    is_part: bool = False

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        known: frozenset[str],
        constants: Mapping[str, Content],
        held: HeldTensors | None = None,
    ) -> WeightSource:
        """Return the weights of a module, a state_dict or a file.

        Args:
            weights: a module, its state_dict, or a path.
            known: all names of weights and constants in the compiled model.
            constants: contents of the program's constants by the model's names.
            held: the tensors that the compiled model held without registering them; None if it is not known.

        Raises:
            TypeError: it is none of these.
            RefitError: its constants differ from the program's, or a name is not a string.
            WeightsFileError: the file cannot be read.
        """
        module, is_file = None, isinstance(weights, (str, os.PathLike))
        if isinstance(weights, torch.nn.Module):
            module = weights
            _check_constants(constants, lambda name: _attribute(module, name))
            if held is not None:
                _check_held(held, module)
            else:
                _check_unnamed_constants(constants, module)
            state = weights.state_dict(keep_vars=True)
        elif isinstance(weights, (str, os.PathLike)):
            state = read_weights(Path(weights))
            _check_constants(constants, state.get)
        elif isinstance(weights, Mapping):
            state = dict(weights)
            if strange := tuple(repr(name) for name in state if not isinstance(name, str)):
                raise RefitError(unexpected=strange)
            _check_constants(constants, state.get)
        else:
            raise TypeError(f"refit takes a path, a torch.nn.Module or its state_dict, not {type(weights).__name__}")
        # The result of a module's get_extra_state is not a weight.
        taken = {name: one for name, one in state.items() if name in known or not name.endswith(_EXTRA_STATE)}
        return cls(taken, module, is_file, isinstance(weights, SomeWeights))


def _check_constants(constants: Mapping[str, Content], value_of: Callable[[str], object]) -> None:
    changed = [
        f"{name} (a constant of the program; compile the new model instead)"
        for name, content in constants.items()
        if isinstance(value := value_of(name), torch.Tensor) and Content.of(value) != content
    ]
    if changed:
        raise RefitError(mismatched=tuple(changed))


def _check_held(held: HeldTensors, module: torch.nn.Module) -> None:
    if different := held.find_differences(module):
        what = "not registered, and not as in the compiled model"
        remedy = "compile the new model, or refit its state_dict if they do not matter"
        raise RefitError(mismatched=(f"{different} ({what}; {remedy})",))


def _check_unnamed_constants(constants: Mapping[str, Content], module: torch.nn.Module) -> None:
    """Check the constants that are no attributes, if the compiled model is not known.

    torch.export names them by numbers, and it is not known where they were. One that ``forward`` creates is in no
    module; any other is only known to be in its place if nothing else of its shape could be.

    Raises:
        RefitError: the module has other tensors of such a shape, or the program has two such constants.
    """
    unnamed = {name: one for name, one in constants.items() if not isinstance(_attribute(module, name), torch.Tensor)}
    if not unnamed:
        return
    from trtcache.runtime.held_tensors import HeldTensors  # few programs have such constants

    held = {one for one in HeldTensors.of(module, (), unnamed.values()).contents.values() if one is not None}
    shapes = {one.shape for one in held}
    in_shape = {shape: {one for one in (*held, *constants.values()) if one.shape == shape} for shape in shapes}
    why = "a constant of the program that is maybe an unregistered tensor of the module; compile the new model instead"
    changed = [f"{name} ({why})" for name, one in unnamed.items() if in_shape.get(one.shape, {one}) != {one}]
    if changed:
        raise RefitError(mismatched=tuple(changed))


def _attribute(module: torch.nn.Module | None, name: str) -> object:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
