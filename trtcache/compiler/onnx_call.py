"""Calls of a model whose inputs have names that need not be Python's: by position in the file's order, or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree as pytree

from trtcache.errors import InputError
from trtcache.runtime.signature import CallSignature

if TYPE_CHECKING:
    from collections.abc import Sequence


class NamedCall(CallSignature):
    """The call signature of an ONNX model. Its answer is a tuple of its outputs, in the file's order."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Take and give tensors of these names."""
        arguments = pytree.tree_structure((tuple(range(len(inputs))), {}))
        super().__init__(arguments, pytree.tree_structure(tuple(range(len(outputs)))), None)
        self._inputs = tuple(inputs)

    def label(self, leaf: int) -> str:
        """Return ``argument input_ids``."""
        return f"argument {self._inputs[leaf]}"

    def _arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names = self._inputs
        expected = f"{len(names)} ({', '.join(names)})"
        if len(args) > len(names):
            raise InputError("arguments", expected, f"{len(args)} by position")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise InputError(f"argument {name}", f"one of {', '.join(names)}", "a name that it does not have")
            if name in given:
                raise InputError(f"argument {name}", "one value", "one by position and one by name")
            given[name] = value
        if missing := [name for name in names if name not in given]:
            raise InputError("arguments", expected, f"{len(given)}", f"{', '.join(missing)} is missing")
        return tuple(given[name] for name in names), {}
