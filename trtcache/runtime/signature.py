"""The call signature of a compiled module: from arguments to leaves, and from results to the model's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.errors import InputError
from trtcache.lowering.arguments import children, configuration, configurations, leaf_paths, module_class
from trtcache.runtime.argument_order import ArgumentOrder, difference

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator, Sequence


_OTHER_SETUP = ("a module that is set up as when compiling", "one with other flags, numbers or submodules")


class CallSignature(ArgumentOrder):
    """The call signature of a model, and the structure of arguments that it was compiled with.

    A call may pass an argument by position or by name, and may pass arguments that were omitted when compiling if they
    have the model's own default.
    """

    def __init__(
        self,
        in_spec: pytree.TreeSpec,
        out_spec: pytree.TreeSpec,
        signature: inspect.Signature | None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        """Store how torch flattens arguments and output.

        Args:
            in_spec: of ``(args, kwargs)`` as the program was exported.
            out_spec: of the output.
            signature: of the model's ``forward``, if there is a model.
            input_names: names of arguments that need not be names of Python, as those of an ONNX file.
        """
        self.in_spec, self.out_spec = in_spec, out_spec
        positional, named = children(in_spec)
        super().__init__(len(children(positional)), named.context, signature, input_names)
        self._modules = configurations(in_spec)
        self._is_single = out_spec.is_leaf()
        self._flat = all(child.is_leaf() for child in (*children(positional), *children(named)))

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves of a call's arguments.

        Raises:
            InputError: arguments are missing, unknown, or of another structure than when compiling.
        """
        args, kwargs = self.order(args, kwargs)
        if self._flat:
            return (*args, *[kwargs[name] for name in self._names]) if kwargs else args
        ordered = {name: kwargs[name] for name in self._names}
        leaves, spec = pytree.tree_flatten((args, ordered))
        if self._modules or spec != self.in_spec:
            leaves = []
            if not self._gather(self.in_spec, (args, ordered), leaves, iter(self._modules)):
                path, expected, found = difference(self.in_spec, spec)
                raise InputError(self._name(path), expected, found)
        return leaves

    def _gather(
        self, spec: pytree.TreeSpec, value: Any, leaves: list[Any], modules: Iterator[dict[str, Any] | None]
    ) -> bool:
        """Append the leaves of a value in the order of a spec, as ``ExportedProgram.module()`` reads them.

        A ``torch.Size`` counts as a tuple, a dict may have its keys in another order, and a module contributes its
        parameters and buffers. Returns False if the structure differs.

        Raises:
            InputError: a module's configuration differs from the compiled one's.
        """
        if module_class(spec) is not None:
            return self._gather_module(spec, value, leaves, next(modules))
        if spec.is_leaf():
            leaves.append(value)
            return pytree.tree_structure(value).is_leaf()
        expected = children(spec)
        if spec.type is dict and type(value) is dict:
            if value.keys() != set(spec.context):
                return False
            parts = [value[key] for key in spec.context]
        else:
            parts, found = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
            size = spec.type is tuple and type(value) is torch.Size
            if found.is_leaf() or not (size or (found.type is spec.type and found.context == spec.context)):
                return False
        return len(parts) == len(expected) and all(
            self._gather(one, part, leaves, modules) for one, part in zip(expected, parts, strict=True)
        )

    def _gather_module(
        self, spec: pytree.TreeSpec, value: Any, leaves: list[Any], expected: dict[str, Any] | None
    ) -> bool:
        if type(value) is not module_class(spec):
            return False
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        if list(tensors) != spec.context[0]:
            return False
        if configuration(value) != expected:
            # Its numbers and flags are part of the program: torch.export traced the example module.
            hint = "pass the one that was compiled with, or compile again"
            where = self.label(len(leaves)).removesuffix(f"[{next(iter(tensors))!r}]") if tensors else "arguments"
            raise InputError(where, *_OTHER_SETUP, hint)
        leaves += tensors.values()
        return True

    def unflatten(self, results: list[Any]) -> Any:
        """Return an output with the model's own structure."""
        if self._is_single:
            return results[0]
        return pytree.tree_unflatten(results, self.out_spec)

    def label(self, leaf: int) -> str:
        """Return the caller's name for a leaf: ``argument input_ids`` or ``argument states[0]``."""
        if self._input_names is not None:
            return f"argument {self._input_names[leaf]}"
        _, first, *rest = leaf_paths(self.in_spec)[leaf]
        place = getattr(first, "key", None)
        return f"{self._name((0, getattr(first, 'idx', 0) if place is None else place))}{pytree.keystr(tuple(rest))}"
