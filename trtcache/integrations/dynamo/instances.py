"""The engine instances of one graph: one for each set of weights that calls come with.

Dynamo compiles a graph once for all modules of one code, and gives each call the weights of the module at hand. Which
they are is told by identity and by address, for ``weight.data = other`` changes neither the object nor a guard of
Dynamo's; by strides, whose guards a caller can switch off; and, for weights that an engine has a copy of, by torch's
counter of changes in place.
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

    from trtcache.integrations.dynamo.reports import GraphReport
    from trtcache.runtime import CompiledModule

MOST_INSTANCES = 256
"""Sets of weights that one graph keeps engines for. A model of more equal blocks than that loads one on each call."""


class Instance:
    """A compiled module, and by what its weights are known."""

    __slots__ = ("copied", "facts", "memories", "module", "owners", "used", "versions")

    def __init__(self, module: CompiledModule, weights: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Note what the weights are like now.

        Args:
            module: the engine with the weights in it.
            weights: in the order of the graph's arguments.
            names: what the module calls them.
        """
        self.module = module
        self.facts = facts_of(weights)
        copied = module.find_copied(dict(zip(names, weights, strict=True)))
        self.copied = [place for place, name in enumerate(names) if name in copied]
        # Held, so that no other weights come to lie there: those of a folded convolution, taken away to save memory and
        # put back with other values, had the old address and the old version.
        self.memories = [weights[place].untyped_storage() for place in self.copied]
        self.versions = self._versions(weights)
        self.owners: list[weakref.ref[torch.Tensor]] = []
        self.used = 0

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Say whether these weights, known to be the same objects, are what the engine has."""
        return facts_of(weights) == self.facts and (not self.copied or self._versions(weights) == self.versions)

    def _versions(self, weights: Sequence[torch.Tensor]) -> list[object]:
        chosen = [weights[place] for place in self.copied]
        # Inference tensors have no counter: they are taken for changed, by an object that equals no other.
        return [object() if one.is_inference() else one._version for one in chosen]


def facts_of(weights: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Return what is compared on each call beside identity, by loops that run in C."""
    return (*map(torch.Tensor.data_ptr, weights), *map(torch.Tensor.stride, weights))


class Instances:
    """Finds the instance that holds a call's weights, or makes it."""

    def __init__(
        self, names: Mapping[int, str], make: Callable[[Sequence[Any]], CompiledModule], report: GraphReport
    ) -> None:
        """Start with none.

        Args:
            names: the places of weights among the arguments, and what a module calls them.
            make: compiles a module for the arguments of a call; asked where there is none to begin with, and for
                weights that do not fit the engine at hand.
            report: where sets of weights are counted.
        """
        self._places, self._names = tuple(names), tuple(names.values())
        self._make, self._report = make, report
        self._held: dict[tuple[int, ...], Instance] = {}
        self._last: CompiledModule | None = None
        self._lock = threading.Lock()
        self._clock = itertools.count(1)

    def find(self, args: Sequence[Any]) -> CompiledModule:
        """Return the module that holds the weights of a call.

        Raises:
            TrtcacheError: as ``make``.
        """
        weights = [args[place] for place in self._places]
        key = tuple(map(id, weights))
        instance = self._held.get(key)
        if instance is None or not instance.holds(weights):
            instance = self._changed(args, weights, key)
        instance.used = next(self._clock)
        return instance.module

    def _changed(self, args: Sequence[Any], weights: list[torch.Tensor], key: tuple[int, ...]) -> Instance:
        with self._lock:
            found = self._held.get(key)
            if found is not None and found.holds(weights):
                return found
            instance = Instance(self._fitted(args, weights), weights, self._names)
            instance.owners = [weakref.ref(weight, self._forget(key)) for weight in weights]
            if found is None and len(self._held) >= MOST_INSTANCES:
                self._held.pop(min(list(self._held.items()), key=lambda item: item[1].used)[0], None)
            self._held[key] = instance
            # An engine to make others of is kept when its weights die, as those of load_state_dict(assign=True) do.
            self._last = instance.module
            self._report.weight_sets += 1
            return instance

    def _fitted(self, args: Sequence[Any], weights: list[torch.Tensor]) -> CompiledModule:
        if self._last is None:
            return self._make(args)
        try:
            return self._last.with_weights(dict(zip(self._names, weights, strict=True)))
        except RefitError:
            return self._make(args)

    def _forget(self, key: tuple[int, ...]) -> Callable[[weakref.ref[torch.Tensor]], None]:
        held = self._held

        def forget(owner: weakref.ref[torch.Tensor]) -> None:
            instance = held.get(key)
            if instance is not None and any(one is owner for one in instance.owners):
                held.pop(key, None)

        return forget
