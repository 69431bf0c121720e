"""``DirectMode``: direct mode of one ``compile`` call: it finds a manifest, or stores one after an export.

The parts of a direct key, at the end of this file, are the arguments, the weights without their values, and torch's
settings. Whatever else a program depends on, the model's code and attributes above all, shows in the operations.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils import _pytree as pytree

from trtcache.config import paused_collector
from trtcache.digests import CacheKey, Digest, Json, hash_bytes
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.executed_code import ExecutedCode
from trtcache.frontends.direct.export_context import require_exportable
from trtcache.frontends.direct.manifest import KIND, MEMBER, NO_MANIFEST, Manifest, differences_to_newest, store_reason
from trtcache.frontends.direct.replay import format_difference, replay
from trtcache.frontends.direct.trace import (
    NAMED,
    TENSORS,
    Recording,
    describe_structure,
    has_values,
    is_symbolic,
    own_arguments,
    record,
    weights_of,
    write_constant,
)
from trtcache.keys.alias_key import overrides
from trtcache.keys.key import process_state
from trtcache.lowering import export_lock
from trtcache.lowering.arguments import replace_inputs
from trtcache.lowering.operators import refuse_replaced_kernels
from trtcache.lowering.random_states import keep_random_states
from trtcache.weights.slots import layout

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.cache import Cache
    from trtcache.frontends.source import Specs
    from trtcache.store.contract import Entry


log = logging.getLogger(__name__)

VERIFY = "verify"
_NO_CACHE = "there is no cache"
_NO_ALIAS = "the program has no key alias (TRTCACHE_LOG=keys logs the reason)"
Examples = tuple[tuple[Any, ...], "Mapping[str, Any] | None", Any]
_PLAIN = frozenset({int, bool, float, complex, str, bytes, type(None)})


class DirectMode:
    """Direct mode of one ``compile`` call, in the order of its methods.

    ``find`` makes the direct key of the arguments and the weights' layout, and replays the model with the traces that
    are stored under it. If it has the operations of one, that trace's program is the model's. Otherwise the model is
    exported, and ``store_manifest`` records a trace and stores it with the exported program.

    Attributes:
        outcome: the outcome: ``hit``, ``miss: ...`` or ``off: ...``; empty until it is known.
        manifest: the manifest of the replayed trace, once it is found.
        key: the direct key.
        specs: the structure of the arguments and of the results, once a manifest was found.
        state: the model's weights by its names for them, once a manifest was looked for.
        direct_s: seconds that direct mode took so far.
    """

    def __init__(self, model: torch.nn.Module, examples: Examples, cache: Cache, *, mode: str, name: str) -> None:
        """Note what is compiled; nothing is run.

        Args:
            model: the module to compile.
            examples: positional and named arguments, and dynamic shapes.
            cache: the cache of manifests.
            mode: ``on`` or ``verify``.
            name: the name of the program.
        """
        self._model, self._cache, self._mode, self._name = model, cache, mode, name
        args, kwargs, self._dynamic_shapes = examples
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self.outcome = ""
        self.manifest: Manifest | None = None
        self.key: CacheKey | None = None
        self.specs: Specs | None = None
        self.state: Mapping[str, torch.Tensor] = {}
        self.direct_s = 0.0
        self._shapes: Any = None
        self._parts: dict[str, Json] = {}
        self._code = set[str]()  # digests of all functions that ran, also of those that only run the first time
        self._stored: list[Manifest] = []
        self._entry: Entry | None = None

    @property
    def is_verifying(self) -> bool:
        """Whether a hit is exported too, to compare the programs."""
        return self._mode == VERIFY

    def find(self) -> bool:
        """Find the manifest with the operations of the model; return whether there is one."""
        start = time.perf_counter()
        try:
            with export_lock(imports_dynamo=False), paused_collector():
                return self._find()
        except NotComparableError as error:
            self.outcome = f"off: {error}"
        except Exception as error:  # the model's code can raise anything; it is exported all the same
            log.debug("%s cannot be replayed", self._name, exc_info=True)
            self.outcome = f"off: the model cannot be run without values ({type(error).__name__}: {error})"
        finally:
            self.direct_s += time.perf_counter() - start
        return False

    def _find(self) -> bool:
        if not self._cache.layers.stores:
            raise NotComparableError(_NO_CACHE)
        # With the lock: another thread's replay has fake weights there.
        self._model.state_dict(keep_vars=True)  # torch.export calls it first, and hooks of it can replace weights
        self.state = weights_of(self._model)
        args, kwargs, self._shapes = replace_inputs(self._model, self._args, self._kwargs, self._dynamic_shapes)
        if not self._shapes:
            args, kwargs = own_arguments(self.state.values(), args, kwargs)
        self._args, self._kwargs = args, kwargs
        self._parts = direct_key_parts(self._model, self.state, args, kwargs)
        if self._shapes:
            from trtcache.frontends.direct.program_trace import SYMPY, describe_shapes

            sizes = describe_shapes(self._model, args, kwargs, self._shapes)
            self._parts["sizes"] = [self._has_inputs, sizes, SYMPY]
        digests = {name: hash_bytes(json.dumps(part).encode()).hex() for name, part in self._parts.items()}
        self.key = CacheKey.of(KIND, {"format": manifests.FORMAT, **digests})
        self._entry = self._cache.peek(self.key, counted=False)
        if self._entry is None:
            return False
        try:
            self._stored = manifests.read(bytes(self._entry.read(MEMBER)))
        except Exception as error:  # an intact entry can contain anything
            log.debug("the manifests of %s cannot be read", self._name, exc_info=True)
            self._reject(f"it cannot be used: {error!r}")
            return False
        reset_random = keep_random_states()
        try:
            place, difference = self._compare()
        finally:
            reset_random()  # as after an export, which draws the same numbers if one follows
        if place is None:
            self.outcome = f"miss: {difference}"
            return False
        self.manifest = self._stored[place]
        return True

    def _compare(self) -> tuple[int | None, str]:
        """Return the place of the manifest with the model's operations and code, or None and the first difference."""
        traces = [one.trace for one in self._stored]
        if not self._shapes and not any(map(is_symbolic, traces)):
            replayed = replay(self._model, self._args, self._kwargs, self._stored)
            self.specs = pytree.tree_flatten((self._args, self._kwargs))[1], replayed.out_spec
            self._code.update(replayed.code.by_digest)  # without ``functions``, those of the recording decide
            return replayed.place, replayed.difference
        recording = self._record()
        trace, self.specs = recording.trace, recording.specs
        self._code.update(recording.code.by_digest)
        change = ""
        for place, stored in enumerate(self._stored):
            if stored.trace == trace:
                change = recording.code.describe_change(map(set, stored.versions))
                if not change:
                    return place, ""
        if change:
            return None, change
        pairs = enumerate(zip(traces[0], trace, strict=False))
        different = next(((place, *lines) for place, lines in pairs if lines[0] != lines[1]), None)
        return None, format_difference(*different) if different else "it ends elsewhere"

    @property
    def _has_inputs(self) -> bool:
        """Whether sizes are those of ``Input`` objects, whose ranges are kept as they are."""
        return self._shapes is not self._dynamic_shapes

    def _record(self) -> Recording:
        """Return the trace of the model, and what it was recorded with."""
        if not self._shapes:
            try:
                return record(self._model, self._args, self._kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException):
                log.debug("%s has sizes or numbers that depend on values", self._name)
        from trtcache.frontends.direct.program_trace import record_symbolic

        return record_symbolic(self._model, self._args, self._kwargs, self._shapes, is_whole=self._has_inputs)

    def export(self, function: Callable[[], ExportedProgram]) -> ExportedProgram:
        """Call a function that exports the model, and collect what runs."""
        if self.key is None:
            return function()
        code = ExecutedCode()
        with export_lock(), code.collect():  # one thread collects at a time
            program = function()
        self._code.update(code.by_digest)
        return program

    def store_manifest(
        self, program: ExportedProgram, digest: Callable[[], Digest], export_s: float, *, has_alias: bool
    ) -> None:
        """Store a manifest for the next time, or say why there is none; compare the programs in mode ``verify``.

        Args:
            program: the exported program.
            digest: returns the digest that it had before it was lowered, or raises ValueError.
            export_s: seconds that exporting took.
            has_alias: whether its key alias is stored; without one a manifest would be useless.
        """
        try:
            self._store_or_verify(program, digest, export_s, has_alias=has_alias)
        except Exception as error:  # the model is compiled all the same
            log.debug("%s gets no manifest", self._name, exc_info=True)
            self.outcome = f"off: {error}"
        outcome = self.outcome or (self.explain() if self.key is not None else f"miss: {NO_MANIFEST}")
        self.outcome = outcome.encode(errors="backslashreplace").decode()  # names may have lone surrogates
        log.info("%s: direct mode: %s", self._name, self.outcome)
        store_reason(self._cache, self._name, self.outcome)

    def _store_or_verify(
        self, program: ExportedProgram, digest: Callable[[], Digest], export_s: float, *, has_alias: bool
    ) -> None:
        store = self._cache.store
        if self.manifest is not None and self.is_verifying:
            self._verify(program, digest(), export_s, has_alias=has_alias)
            return
        if self.manifest is not None:
            self.outcome = "miss: no cached key for this program with these settings"
        if self.key is None:  # there is nothing to look for, or it cannot be looked for
            self.outcome = self.outcome or f"off: {_NO_ALIAS if self._cache.layers.stores else _NO_CACHE}"
        elif store is not None and store.can_store_builds:
            self._store(program, digest(), export_s, has_alias=has_alias)

    def _store(self, program: ExportedProgram, digest: Digest, export_s: float, *, has_alias: bool) -> None:
        """Store the trace of the model, if the program has a key alias and performs the operations of the trace.

        Raises:
            ValueError: it has none, or performs others.
        """
        if not has_alias:
            raise ValueError(_NO_ALIAS)
        assert self.key is not None  # noqa: S101  # it was made before
        with export_lock(), paused_collector():  # as in an export: code can ask whether it is
            reset_random = keep_random_states()
            try:
                recording = self._record()
            finally:
                reset_random()
            if not self._is_trace_of(program, recording):
                raise ValueError("the exported program performs other operations than the model")
        if recording.specs != (program.call_spec.in_spec, program.call_spec.out_spec):
            raise ValueError("the exported program has another structure of arguments or results than the model")
        if self.manifest is None:
            self.explain()
        self._code.update(recording.code.digests)
        manifest = Manifest.of(recording.trace, self._code, program, digest, export_s)
        others = [one for one in self._stored if one is not self.manifest or one.program == manifest.program]
        kept = manifest.add_to(others)
        if self.manifest != kept[0]:
            members = manifests.write(kept, self._parts)
            self._cache.keep(self.key, members, build_s=manifest.took_s, name=self._name)

    def _is_trace_of(self, program: ExportedProgram, recording: Recording) -> bool:
        """Return whether an exported program performs the operations of a recorded trace."""
        from trtcache.frontends.direct.program_trace import has_sizes_of, perform_same_operations, trace_program

        trace, mode, inputs = recording.trace, recording.mode, recording.inputs
        if is_symbolic(trace) and not has_sizes_of(program, inputs):
            return False
        if perform_same_operations(trace, trace_program(program, mode, inputs, recording.results)):
            return True
        if not is_symbolic(trace):
            return False
        # A number that the model reads from a tensor is a new symbol in this mode: try with the first symbols.
        from trtcache.frontends.direct.program_trace import symbolic_inputs

        mode, arguments = symbolic_inputs(self._model, self._args, self._kwargs, self._shapes)
        return perform_same_operations(trace, trace_program(program, mode, pytree.tree_leaves(arguments), None))

    def explain(self) -> str:
        """Return the outcome; unless it is known, set it to a miss, with the differences from the newest manifest."""
        if not self.outcome:
            self.outcome = f"miss: {differences_to_newest(self._cache, self._name, self._parts)}"
        return self.outcome

    def _verify(self, program: ExportedProgram, now: Digest, export_s: float, *, has_alias: bool) -> None:
        """Compare an exported program with that of the manifest; reject the manifest if it has other operations.

        A program of another digest can perform the same operations, for instance with terms of sizes in another order.
        Then it takes the place of the one in the manifest.
        """
        assert self.manifest is not None  # noqa: S101  # it was found
        was = self.manifest.digest
        try:
            if now != was:
                self._store(program, now, export_s, has_alias=has_alias)
        except ValueError:
            why = f"it has the program {str(was)[:16]}, but exporting the model gives {str(now)[:16]}"
            self.outcome = f"refused: {why}"
            self._reject(why)
        else:
            self.outcome = "verified"

    def _reject(self, why: str) -> None:
        assert self._entry is not None  # noqa: S101  # it was read
        log.error("the manifest of %s is refused: %s", self._name, why)
        self._cache.reject(self._entry, KIND)


def direct_key_parts(
    model: torch.nn.Module, weights: Mapping[str, torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Json]:
    """Return the parts of a direct key.

    Args:
        model: the model.
        weights: its parameters and buffers.
        args: example arguments.
        kwargs: example keyword arguments.

    Raises:
        NotComparableError: a part cannot be described, or an export fails.
        TypeError, ValueError: the arguments are not those of ``forward``.
    """
    _refuse_modes()
    require_exportable(model, args, kwargs)
    return {
        "forward": [*inspect.signature(model.forward).parameters],
        "arguments": _arguments(args, kwargs),
        "empty": _empty_buffers(model),
        "weights": _describe_weights(model, weights),
        "process": _process(),
    }


def _empty_buffers(model: torch.nn.Module) -> list[Json]:
    """Return the places of those of a model's own buffers that are None; torch.export counts them, but for the last."""
    are_empty = [buffer is None for buffer in model._buffers.values()]
    while are_empty and are_empty[-1]:
        are_empty.pop()
    return [place for place, is_empty in enumerate(are_empty) if is_empty]


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    pairs, spec = pytree.tree_flatten_with_path((args, dict(kwargs)))  # as torch.export: it needs the paths
    leaves = [leaf for _, leaf in pairs]
    return [describe_structure(spec), *(_argument(place, leaf) for place, leaf in enumerate(leaves))]


def _argument(place: int, leaf: Any) -> Json:
    kind = type(leaf)
    if kind in TENSORS:
        if layout(tuple(leaf.shape), leaf.stride()) != leaf.stride():
            raise NotComparableError(f"argument {place} has gaps in its memory")
        return [*_tensor(f"argument {place}", leaf), int(leaf.storage_offset())]
    if kind in _PLAIN:
        return [kind.__name__, repr(leaf)]
    if kind in NAMED:
        return ["torch", str(leaf)]
    raise NotComparableError(f"argument {place} is of class {kind.__qualname__}")


def _describe_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> Json:
    """Describe parameters and buffers, without their values unless a program has those as constants."""
    constants = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    storages: dict[int, int] = {}
    places: dict[int, int] = {}
    numbers: dict[int, int] = {}
    written: dict[str, Json] = {}
    for name, tensor in weights.items():
        properties = _tensor(f"weight {name}", tensor)
        storage = tensor.untyped_storage()
        shared: Json = [
            numbers.setdefault(id(tensor), len(numbers)),
            storages.setdefault(storage._cdata, len(storages)),
            places.setdefault(tensor.data_ptr(), len(places)),
        ]
        content = write_constant(tensor) if name in constants else ""
        written[name] = [*properties, int(tensor.storage_offset()), storage.nbytes(), shared, content]
    return written


def _tensor(what: str, tensor: torch.Tensor) -> list[Json]:
    """Describe the properties of a tensor that its fake tensor in an export has as well, but for a gradient.

    Raises:
        NotComparableError: it is of a derived class, sparse, without values, or marked for Dynamo.
    """
    if not has_values(tensor):
        raise NotComparableError(f"{what} is of class {type(tensor).__qualname__}, sparse, or without values")
    # torch.export treats the sizes of a marked tensor as the marks say. ``torch.compile`` sets one without sizes.
    # Other attributes are not those of the fake tensor that takes its place.
    if marks := [name for name, value in vars(tensor).items() if _is_mark(name, value)]:
        raise NotComparableError(f"{what} has marks for Dynamo ({', '.join(marks)})")
    base = None if tensor.is_inference() else tensor._base
    flags = [tensor.is_inference(), tensor.is_leaf, tensor.requires_grad, tensor.retains_grad]
    flags += [tensor.is_conj(), tensor.is_neg()]
    described: list[Json] = [type(tensor).__name__, *_layout(tensor), *map(int, flags)]
    return [*described, None if base is None else _layout(base)]


def _is_mark(name: str, value: Any) -> bool:
    """Return whether an attribute of a tensor marks sizes for Dynamo; an export leaves empty ones behind."""
    if name == "_specialize_on":
        return any(value.values())
    return name.startswith("_dynamo") and name != "_dynamo_static_input_type" and bool(value)


def _layout(tensor: torch.Tensor) -> list[Json]:
    return [str(tensor.dtype), str(tensor.device), [*map(int, tensor.shape)], [*map(int, tensor.stride())]]


def _process() -> Json:
    modules = sorted((name, one) for name, one in sys.modules.items() if type(one).__name__ == "ConfigModuleInstance")
    options: dict[str, Json] = {
        name: {option: repr(value) for option, value in sorted(overrides(one))} for name, one in modules
    }
    return {
        "torch": [str(torch.__version__), str(torch.version.git_version)],
        "python": sys.version,
        "state": repr(process_state()),
        "gradients": [int(torch.is_grad_enabled()), int(torch.is_inference_mode_enabled())],
        "options": {name: found for name, found in options.items() if found},
    }


def _refuse_modes() -> None:
    """Check that no mode, and no kernel of another file, changes what operators do.

    Raises:
        NotComparableError: there is one.
    """
    try:
        refuse_replaced_kernels()
    except ValueError as error:
        raise NotComparableError(str(error)) from None
    active = {
        "a dispatch mode": torch._C._len_torch_dispatch_stack() > 0,
        "a transform of functorch": torch._C._functorch.peek_interpreter_stack() is not None,
        "torch.jit.trace": torch._C._get_tracing_state() is not None,
        "a hook of saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
    }
    if found := [what for what, is_active in active.items() if is_active]:
        raise NotComparableError(f"{found[0]} is active")
