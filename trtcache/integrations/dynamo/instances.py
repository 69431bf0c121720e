"""Engine instances of one graph: one for each set of weights that calls pass.

Dynamo compiles a graph once for all modules that share the same code, and passes the current module's weights to each
call. They are identified by object identity; by address, since ``weight.data = other`` changes neither the object nor a
Dynamo guard; by strides, whose guards a caller can disable; and, for weights that an engine copied, by torch's version
counter.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import RefitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.integrations.dynamo.options import GraphReport
    from trtcache.runtime import CompiledModule

MOST_INSTANCES = 256
"""Maximum sets of weights per graph. A model with more identical blocks than this loads an engine on each call."""


class Instance:
    """A compiled module and the identity of its weights."""

    __slots__ = ("copied", "facts", "memories", "module", "owners", "used", "versions")

    def __init__(self, module: CompiledModule, weights: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Record the identity of the weights.

        Args:
            module: the compiled module with these weights.
            weights: the weights in the order of the graph's arguments.
            names: the module's names of the weights.
        """
        self.module = module
        self.facts = facts_of(weights)
        copied = module.find_copied(dict(zip(names, weights, strict=True)))
        self.copied = [place for place, name in enumerate(names) if name in copied]
        # Keep the storages alive: new weights could reuse the address and the version of freed ones, as those of a
        # folded convolution did.
        self.memories = [weights[place].untyped_storage() for place in self.copied]
        self.versions = self._versions(weights)
        self.owners: list[weakref.ref[torch.Tensor]] = []
        self.used = 0

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Return whether the engine has the current values of these weights; the caller compares object identity."""
        return facts_of(weights) == self.facts and (not self.copied or self._versions(weights) == self.versions)

    def _versions(self, weights: Sequence[torch.Tensor]) -> list[object]:
        chosen = [weights[place] for place in self.copied]
        # Inference tensors have no counter: treat them as changed, by an object that equals no other.
        return [object() if one.is_inference() else one._version for one in chosen]


def facts_of(weights: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Return addresses and strides; ``map`` keeps the loops of each call in C."""
    return (*map(torch.Tensor.data_ptr, weights), *map(torch.Tensor.stride, weights))


class Instances:
    """Find the instance that holds a call's weights, or create it."""

    def __init__(
        self, names: Mapping[int, str], make: Callable[[Sequence[Any]], CompiledModule], report: GraphReport
    ) -> None:
        """Start without instances.

        Args:
            names: the indices of weights among the arguments, with the module's names.
            make: compiles a module for the arguments of a call; called for the first one, and for weights that do not
                fit the last engine.
            report: the report that counts sets of weights.
        """
        self._places, self._names = tuple(names), tuple(names.values())
        self._make, self._report = make, report
        self._instances: dict[tuple[int, ...], Instance] = {}
        self._last: CompiledModule | None = None
        self._lock = threading.Lock()
        self._clock = itertools.count(1)

    def find(self, args: Sequence[Any]) -> CompiledModule:
        """Return the module that holds the weights of a call.

        Raises:
            TrtcacheError: see ``make``.
        """
        weights = [args[place] for place in self._places]
        key = tuple(map(id, weights))
        instance = self._instances.get(key)
        if instance is None or not instance.holds(weights):
            instance = self._add(args, weights, key)
        instance.used = next(self._clock)
        return instance.module

    def _add(self, args: Sequence[Any], weights: list[torch.Tensor], key: tuple[int, ...]) -> Instance:
        with self._lock:
            found = self._instances.get(key)
            if found is not None and found.holds(weights):
                return found
            instance = Instance(self._make_module(args, weights), weights, self._names)
            instance.owners = [weakref.ref(weight, self._forget(key)) for weight in weights]
            if found is None and len(self._instances) >= MOST_INSTANCES:
                self._instances.pop(min(list(self._instances.items()), key=lambda item: item[1].used)[0], None)
            self._instances[key] = instance
            # Keep an engine to derive others from when its weights die, as after load_state_dict(assign=True).
            self._last = instance.module
            self._report.weight_sets += 1
            return instance

    def _make_module(self, args: Sequence[Any], weights: list[torch.Tensor]) -> CompiledModule:
        if self._last is None:
            return self._make(args)
        try:
            return self._last.with_weights(dict(zip(self._names, weights, strict=True)))
        except RefitError:
            return self._make(args)

    def _forget(self, key: tuple[int, ...]) -> Callable[[weakref.ref[torch.Tensor]], None]:
        instances = self._instances

        def forget(owner: weakref.ref[torch.Tensor]) -> None:
            instance = instances.get(key)
            if instance is not None and any(one is owner for one in instance.owners):
                instances.pop(key, None)

        return forget
