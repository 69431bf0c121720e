"""The call of a compiled module: from arguments through the engine to the model's output.

``ModuleCall`` is a plain object, not part of the module's class: each attribute of a ``torch.nn.Module`` is looked up
through ``__getattr__``, which made a call of a tiny model 15 % slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config import threads as thread_counts
from trtcache.config.threads import Threads
from trtcache.errors import GuardError, InputError
from trtcache.lowering.arguments import CONTAINERS, children, configuration, configurations, leaf_paths, module_class
from trtcache.runtime.argument_order import ArgumentOrder, difference
from trtcache.runtime.checks import ExactKey, bind_sizes, check_outputs, evaluate_size, exact_keys, values_by_key
from trtcache.runtime.inputs import InputCheck, Memory, has_layout, to_layout, with_strides
from trtcache.runtime.operator import EngineCall, is_fake, is_tracing, places, separate_memory
from trtcache.weights.slots import EngineWeights, dtype_name, storage_id

if TYPE_CHECKING:
    import inspect

    from trtcache.backends.protocol import Engine
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.on_guard import OnGuard
    from trtcache.runtime.refit import EngineSwap


_OTHER_SETUP = ("a module that is set up as when compiling", "one with other flags, numbers or submodules")


class CallSignature(ArgumentOrder):
    """The call signature of a model, and the structure of arguments that it was compiled with.

    A call may pass an argument by position or by name, and may pass arguments that were omitted when compiling if they
    have the model's own default, as far as the signature says that the model cannot tell these calls apart.
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
            signature: of what a call of the model runs, if there is a model.
            input_names: names of arguments that need not be names of Python, as those of an ONNX file.
        """
        self.in_spec, self.out_spec = in_spec, out_spec
        positional, named = children(in_spec)
        super().__init__(len(children(positional)), named.context, signature, input_names)
        self._modules = configurations(in_spec)
        self._is_single = out_spec.is_leaf()
        self._has_shapes = not self._is_single and _has_shapes(out_spec)
        self._flat = all(child.is_leaf() for child in (*children(positional), *children(named)))
        self._expected = in_spec if self._flat else _exact_spec(in_spec)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the leaves of a call's arguments.

        Raises:
            InputError: arguments are missing, unknown, or of another structure than when compiling.
        """
        args, kwargs = self.order(args, kwargs)
        if self._flat:
            return (*args, *[kwargs[name] for name in self.names]) if kwargs else args
        ordered = {name: kwargs[name] for name in self.names}
        leaves, spec = pytree.tree_flatten((args, ordered))
        if self._modules or self._expected != spec:
            leaves = []
            if not self._gather(self._expected, (args, ordered), leaves, iter(self._modules)):
                path, expected, found = difference(self._expected, spec)
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
            parts = values_by_key(value, spec.context)
            if parts is None:
                return False
        else:
            parts, found = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
            size = spec.type is tuple and type(value) is torch.Size
            if found.is_leaf() or not (size or (found.type is spec.type and spec.context == found.context)):
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
        if self._has_shapes:
            return _unflatten_with_shapes(self.out_spec, iter(results))
        return pytree.tree_unflatten(results, self.out_spec)

    def label(self, leaf: int) -> str:
        """Return the caller's name for a leaf: ``argument input_ids`` or ``argument states[0]``."""
        if self._input_names is not None:
            return f"argument {self._input_names[leaf]}"
        _, first, *rest = leaf_paths(self.in_spec)[leaf]
        place = getattr(first, "key", None)
        return f"{self._name((0, getattr(first, 'idx', 0) if place is None else place))}{pytree.keystr(tuple(rest))}"


def _exact_spec(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a spec that equals only those whose keys have the same types: see ``ExactKey``."""
    if spec.is_leaf() or module_class(spec) is not None:
        return spec
    # The context of a class that is registered with torch can be anything.
    context = exact_keys(spec.context) if spec.type in CONTAINERS else ExactKey(spec.context)
    return pytree.TreeSpec(spec.type, context, [_exact_spec(child) for child in children(spec)])


def _has_shapes(spec: pytree.TreeSpec) -> bool:
    return spec.type is torch.Size or any(map(_has_shapes, children(spec)))


def _unflatten_with_shapes(spec: pytree.TreeSpec, results: Iterator[Any]) -> Any:
    """Return an output with ``torch.Size`` for the shapes in it, of which ``tree_unflatten`` makes tuples."""
    if spec.is_leaf():
        return next(results)
    parts = [_unflatten_with_shapes(child, results) for child in children(spec)]
    if spec.type is torch.Size:
        return torch.Size(parts)
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(parts, spec.context)


class ModuleCall:
    """Call an engine with its model's signature.

    Attributes:
        signature: how arguments and outputs are flattened.
        check: the check of a call's arguments.
        swap: the current engine, and the calls that run on it.
        threads: the value of ``settings.threads``.
        on_guard: answers calls with sizes that the program was not exported for; None if they raise.
        operator: the operator that torch.export and torch.compile record; None if they cannot trace the engine.
    """

    def __init__(self, executable: Executable, signature: CallSignature, swap: EngineSwap) -> None:
        """Connect an engine with a call signature."""
        self._executable = executable
        interface = executable.interface
        self.signature, self.swap, self.threads = signature, swap, Threads()
        self.check = InputCheck(interface, executable.device, signature.label)
        self.on_guard: OnGuard | None = None
        self._inputs, self._values, self._results = interface.inputs, interface.values, interface.results
        self._plain = all(result.kind == "result" and result.view is None for result in self._results)
        self._tensors = tuple(one.leaf for one in self._inputs if not one.number)
        self._changed = tuple(one for one in interface.weights if one.is_mutated)
        self._memory: tuple[EngineWeights, Memory, Memory] | None = None
        self._has_sizes = any(result.kind == "size" for result in self._results)
        self._layouts = tuple(one.layout for one in self._results if one.is_output)
        self.operator = EngineCall.of(interface, self)
        self._stored, self._stored_last = set[int](), set[int]()
        self._stored_for: Engine | None = None
        self._checked_for: Engine | None = None

    def another(self, swap: EngineSwap) -> ModuleCall:
        """Return the same call of another engine, with the same fixed sizes and threads."""
        other = ModuleCall(self._executable, self.signature, swap)
        other.threads = self.threads
        other.check.fixed_sizes.update(self.check.fixed_sizes)
        return other

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the model's output.

        Raises:
            GuardError: the program was exported for other sizes, and ``on_guard`` is not set.
            InputError: an argument does not match what the module was compiled for.
        """
        try:
            leaves = self.signature.flatten(args, kwargs)
            if is_tracing() and self.operator is not None:
                self.check.check_values(leaves)
                self.check.check_numbers(leaves)
                self.check.check_tensors(leaves)
                outputs = self.operator(leaves)
            else:
                if torch._C._get_tracing_state() is not None:
                    hint = "calls change its weights; trace the model instead"
                    raise InputError("the call", "a call outside of torch.jit.trace", "one that is traced", hint)
                if torch._C._functorch.peek_interpreter_stack() is not None:
                    self._refuse_transforms(leaves)
                outputs = self._answer(leaves)
        except GuardError as error:
            if self.on_guard is None:
                raise
            refused = error
        else:
            if not self._plain:
                outputs = self._finish_results(outputs, leaves)
            return self.signature.unflatten(outputs)
        return self.on_guard.answer(refused, args, kwargs)

    def _refuse_transforms(self, leaves: Sequence[Any]) -> None:
        """Refuse tensors of a function transform, whose memory does not have what they stand for."""
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(leaf):
                hint = "an engine has no batching rule and no derivative: transform the model, or call it without"
                raise InputError(self.signature.label(place), "a plain tensor", "one of torch.func.vmap or grad", hint)

    def _answer(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's outputs in the model's layouts."""
        try:
            inputs = self.check_call(leaves)
        except InputError:
            if self.operator is None or not is_fake(leaves):
                raise
            # Fake tensors fail the check; the operator computes their shapes.
            return self.operator(leaves)
        outputs = self._run(inputs)
        if self._checked_for is not self.swap.engine:
            check_outputs((dtype_name(one.dtype) for one in outputs), self._executable.interface.outputs)
            self._checked_for = self.swap.engine
        outputs = self._copy_weights_in(outputs)
        for place, order in enumerate(self._layouts):
            if order is not None and not has_layout(outputs[place], order):
                outputs[place] = to_layout(outputs[place], order)
        return outputs

    def check_call(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Return the engine's inputs.

        Raises:
            InputError: a leaf is not what the module was compiled for, or in memory that a call reads and changes.
        """
        inputs = self.check(leaves)
        if self._changed or self.check.mutated:
            self._refuse_shared_memory(leaves)
        return inputs

    def _copy_weights_in(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return outputs with copies of those that are the memory of a weight or a constant: a caller may write to one.

        Inductor drops the copy in ``torch.view_as_real(weight.clone())``, and its runtime copies neither this view nor
        that of ``unfold`` (torch 2.13). Storages are compared, since ``share_memory_`` moves the memory of one.
        """
        engine = self.swap.engine
        if engine is not self._stored_for:
            now = set(map(storage_id, (*self._executable.constants.values(), *self.swap.weights.values())))
            # A refit may have come between: then they are of the last engine.
            self._stored, self._stored_last, self._stored_for = now | self._stored_last, now, engine
        stored = self._stored
        return [one.clone() if storage_id(one) in stored else one for one in outputs] if stored else outputs

    def _refuse_shared_memory(self, leaves: Sequence[Any]) -> None:
        """Refuse an input that shares memory with a weight if a call changes either: it reads before it writes."""
        weights, memory = self.swap.weights, self._memory
        if memory is None or memory[0] is not weights:
            changed = Memory({one.label: weights[one.name] for one in self._changed if one.name in weights})
            memory = self._memory = weights, changed, Memory({**weights, **self._executable.constants})
        _, changed, read = memory
        if self._changed and (shared := changed.find_shared(leaves, self._tensors)):
            leaf, label = shared
            raise self.check.wrong(leaf, f"memory of its own: a call changes {label}", "a tensor that shares it")
        if self.check.mutated and (shared := read.find_shared(leaves, self.check.mutated)):
            raise self.check.in_weight(shared[0])

    def _run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run the engine, without autocast: the program has the casts with which it was exported.

        An operator that an engine calls would otherwise return a tensor of another dtype than its code reads.
        """
        if torch._C._is_any_autocast_enabled():
            with torch._C._DisableAutocast():
                return self._run(inputs)
        intra = self.threads.intra
        return self.swap.run(inputs) if intra is None else thread_counts.run_with(intra, self.swap.run, inputs)

    def execute(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the engine for a recorded call of ``trtcache::execute_engine``: from engine inputs to engine outputs.

        Raises:
            InputError: an input does not match what the module was compiled for; nothing ran.
        """
        values = {one.leaf: one.value for one in self._values}
        pairs = zip(self._inputs, inputs, strict=True)
        tensors = {one.leaf: source.shape[0] if one.number else source for one, source in pairs}
        leaves: dict[int, Any] = {**values, **tensors}
        seen = places((*inputs, *self._executable.constants.values())) | self.swap.weight_places()
        outputs = self._answer([leaves.get(leaf) for leaf in range(max(leaves, default=-1) + 1)])
        dense = [
            with_strides(one if order else one.contiguous(), order or tuple(range(one.dim())))
            for one, order in zip(outputs, self._layouts, strict=True)
        ]
        return separate_memory(dense, seen | self.swap.weight_places())  # a refit may have come between

    def _finish_results(self, outputs: list[torch.Tensor], leaves: Any) -> list[Any]:
        """Write new contents back to the caller's inputs, and insert the model's results that are no outputs."""
        results: list[Any] = []
        remaining = iter(outputs)
        sizes = bind_sizes(self._inputs, [leaves[one.leaf] for one in self._inputs]) if self._has_sizes else {}
        for result in self._results:
            if result.kind == "value":
                results.append(result.value)
            elif result.kind == "size":
                results.append(evaluate_size(result.value, sizes))
            elif result.kind == "number":
                results.append(next(remaining).item())
            elif result.kind == "input":
                with torch.no_grad():
                    leaves[result.target].copy_(next(remaining))
            elif result.view is not None:
                tensor = next(remaining)  # the argument itself, whose shape the caller could change with the result's
                results.append(tensor.detach() if result.view == "detached" else tensor.view_as(tensor))
            else:
                results.append(next(remaining))
        return results
