"""A torch_tensorrt partition as a lowered program, and the converters that its version does not identify.

A name and a file do not identify a converter: a function that another one returned has the same of both for every
value in its closure.

The partition's graph is not modified: torch_tensorrt builds from it, so none of our passes may affect it. A copy is
described, in which inputs, weights and constants are marked.
"""

from __future__ import annotations

import dis
import enum
import functools
import importlib.util
import inspect
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from trtcache.digests import Digest, Json, encode
from trtcache.errors import CanonicalizationError
from trtcache.lowering.interface import Interface, Result
from trtcache.lowering.operators import identify_file, is_foreign, is_standard_library
from trtcache.lowering.program import LoweredProgram, number_weights
from trtcache.lowering.rewriting import canonical_order
from trtcache.lowering.symbols import Symbols

if TYPE_CHECKING:
    from trtcache.weights.fingerprints import Fingerprints


_VERSIONED = frozenset({"torch", "torch_tensorrt", "tensorrt", "tensorrt_rtx", "builtins"})
"""Packages whose versions are in every key of a partition."""

_PLAIN = frozenset({type(None), type(...), bool, int, float, complex, str, bytes, slice})
_TORCHS = (torch.dtype, torch.layout, torch.memory_format, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def converter_digest(converter: object) -> Digest:
    """Return a digest of a converter's code, closure, defaults and globals, and of those of all functions in them.

    Raises:
        CanonicalizationError: it has no source file, or refers to a value that has no stable description.
    """
    try:
        Path(inspect.getfile(inspect.unwrap(converter))).stat()  # type: ignore[arg-type]  # any object: see the error
    except (TypeError, OSError) as error:
        raise CanonicalizationError(f"converter {converter!r}", f"no source file: {error}") from error
    try:
        document = _Writer().write(converter)
    except ValueError as error:
        raise CanonicalizationError(f"converter {converter!r}", f"it has no digest: {error}") from error
    return Digest.of(encode(document))


class _Writer:
    """Write values as JSON; a function that was written before by its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def write(self, value: Any) -> Json:  # noqa: C901  # one case for each type
        """Return a value as JSON.

        Raises:
            ValueError: it has no stable description.
        """
        kind = type(value)
        if kind in _PLAIN:
            return [kind.__name__, repr(value)]
        if kind in {list, tuple}:
            return [kind.__name__, *map(self.write, value)]
        if kind in {set, frozenset}:
            return [kind.__name__, *sorted(map(self.write, value), key=encode)]
        if kind is dict:
            return ["dict", *([self.write(name), self.write(one)] for name, one in value.items())]
        match value:
            case enum.Enum():
                return ["enum", self.write(kind), value.name, self.write(value.value)]
            case _ if isinstance(value, _TORCHS):
                return ["torch", str(value)]
            case logging.Logger():
                return ["logger", value.name]
            case ModuleType():
                return ["module", value.__name__, _origin(value.__name__)]
            case type():
                return ["class", f"{value.__module__}.{value.__qualname__}", _origin(value.__module__)]
            case FunctionType():
                return self._write_function(value)
            case MethodType():
                return ["method", self.write(value.__func__), self.write(value.__self__)]
            case BuiltinFunctionType() if not isinstance(value.__self__, ModuleType | None):
                raise ValueError(f"{value!r} belongs to an object")
            case BuiltinFunctionType():
                return ["builtin", f"{value.__module__}.{value.__qualname__}", _origin(value.__module__ or "builtins")]
            case functools.partial() if kind is functools.partial and not vars(value):
                return ["partial", self.write(value.func), self.write(value.args), self.write(value.keywords)]
        raise ValueError(f"a {type(value).__name__} has no stable description: {value!r}")

    def _write_function(self, function: FunctionType) -> Json:
        if id(function) in self._numbers:
            return ["again", self._numbers[id(function)]]
        self._numbers[id(function)] = len(self._numbers)
        code, names = function.__code__, function.__globals__
        closure = [_content(cell) for cell in function.__closure__ or ()]
        document: list[Json] = [
            "function",
            f"{names.get('__name__')}.{code.co_qualname}",
            *map(self.write, (function.__defaults__, function.__kwdefaults__, closure, vars(function))),
        ]
        if not _is_versioned(str(names.get("__name__")), code.co_filename):
            imported = {module: _origin(module) for module in _imports(code, names)}
            referenced = self.write({one: names[one] for one in _globals(code, names)})
            document += [self._write_code(code), referenced, imported]
        return document

    def _write_code(self, code: CodeType) -> Json:
        constants = [self._write_code(one) if isinstance(one, CodeType) else self.write(one) for one in code.co_consts]
        variables = [*code.co_varnames, "", *code.co_freevars, "", *code.co_cellvars]
        counts: list[Json] = [code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
        handlers = getattr(code, "co_exceptiontable", b"").hex()  # Python 3.11: which instructions a try covers
        return [code.co_code.hex(), handlers, counts, list(code.co_names), list(variables), constants]


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return ...


def _globals(code: CodeType, names: dict[str, Any]) -> list[str]:
    """Return the globals that code and the code in it may refer to; a name of an attribute may be among them."""
    found = {name for one in _with_nested(code) for name in one.co_names}
    return sorted(found & names.keys())


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    """Yield code and the code of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _imports(code: CodeType, names: dict[str, Any]) -> list[str]:
    """Return the modules that code and the code in it import.

    Raises:
        ValueError: a relative import is in no package.
    """
    found = set[str]()
    for one in _with_nested(code):
        level = 0
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IMPORT_NAME":
                relative = "." * level + str(instruction.argval)
                try:
                    found.add(importlib.util.resolve_name(relative, str(names.get("__package__") or "")))
                except ImportError as error:
                    raise ValueError(f"an import cannot be resolved: {error}") from error
            elif isinstance(instruction.argval, int):  # the level of an import precedes it
                level = instruction.argval
    return sorted(found)


def _is_versioned(module: str, file: str | None = None) -> bool:
    """Return whether the versions in a key identify a module, by its file: other modules can have names of Python's."""
    if module.partition(".")[0] in _VERSIONED:
        return True
    if file is None:
        loaded = sys.modules.get(module)
        if loaded is None or module in sys.builtin_module_names:
            return module in sys.builtin_module_names
        file = str(getattr(loaded, "__file__", None) or "")
    return is_standard_library(file) or file.startswith("<frozen ")  # of code of modules that Python has in itself


def _origin(module: str) -> Json:
    """Return what identifies the code of a module: nothing for those whose versions are in the key anyway.

    Raises:
        ValueError: it is in no installed distribution.
    """
    if _is_versioned(module):
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        try:
            spec = importlib.util.find_spec(module)  # it is not imported yet
        except (ImportError, ValueError, AttributeError):
            spec = None
        file = spec.origin if spec is not None and spec.has_location else None
    if file is None:
        raise ValueError(f"module {module} has no file")
    return None if is_standard_library(file) else identify_file(file)


_FOLDED = "_frozen_param"
"""The prefix of torch_tensorrt's names for folded constants."""


def describe(module: fx.GraphModule, fingerprints: Fingerprints, *, name: str, refittable: bool) -> LoweredProgram:
    """Return a partition as a lowered program. Its tensors are the partition's own; nothing is copied.

    Args:
        module: the partition.
        fingerprints: computes digests.
        name: the partition's name.
        refittable: whether parameters and statistics of BatchNorms are slots. Everything else is described by
            content, as is everything in a frozen engine: values that converters read (indices, shapes, single
            numbers) determine the network.

    Raises:
        CanonicalizationError: something in the partition has no stable description.
    """
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    returned = graph.graph_copy(module.graph, values)
    tensors: dict[fx.Node, torch.Tensor] = {}
    for node in graph.find_nodes(op="get_attr"):
        value: object = functools.reduce(getattr, str(node.target).split("."), module)
        if not isinstance(value, torch.Tensor):
            raise CanonicalizationError(f"graph node {node.name}", f"a {type(value).__name__} is not a tensor")
        tensors[node] = node.meta["val"] = value
    state = {str(node.target): one for node, one in tensors.items() if refittable and _is_slot(node, one)}
    frozen = {node: one for node, one in tensors.items() if str(node.target) not in state}
    for number, (node, digest) in enumerate(zip(frozen, fingerprints.of(frozen.values()), strict=True)):
        node.meta["constant"] = (f"c{number}", str(digest))
    for node in [one for one in tensors if one not in frozen]:
        node.meta["weight"] = str(node.target)
    for leaf, node in enumerate(graph.find_nodes(op="placeholder")):
        node.meta["input"] = leaf
        if "val" not in node.meta:
            raise CanonicalizationError(f"graph node {node.name}", "an input without dtype and shape")
    results = tuple(returned) if isinstance(returned, (list, tuple)) else (returned,)
    graph.output(results).meta["roles"] = (Result("result"),) * len(results)
    return _program(graph, module, state, tensors, name)


class _DescriptionGraph(fx.GraphModule):
    """A graph that never runs, without the Python code that torch generates: 25 ms for 1,130 nodes."""

    def recompile(self) -> None:  # type: ignore[override]  # torch returns the code, which is unused
        """Generate no code."""


def _program(
    graph: fx.Graph,
    module: fx.GraphModule,
    state: Mapping[str, torch.Tensor],
    tensors: Mapping[fx.Node, torch.Tensor],
    name: str,
) -> LoweredProgram:
    order, arguments = canonical_order(graph)
    slots, weights = number_weights(order, state, mutated=(), state_dict_names=frozenset(state))
    constants = [one for one in order if "constant" in one.meta]
    values = [node.meta.get("val") for node in graph.nodes]
    sizes = (size for one in values for size in (one.shape if isinstance(one, torch.Tensor) else (one,)))
    dynamic = next((size for size in sizes if isinstance(size, torch.SymInt)), None)
    nothing = pytree.tree_structure(())
    return LoweredProgram(
        name=name,
        device=torch.device("cuda"),
        graph_module=_DescriptionGraph(module, graph),
        order=tuple(order),
        arguments=arguments,
        interface=Interface(
            inputs=(),  # torch_tensorrt's own input specs are in the key
            values=(),
            results=graph.output_node().meta["roles"],
            slots=slots,
            weights=weights,
            constants=tuple(one.meta["constant"][1] for one in constants),
            ranges=(),
        ),
        constants={one.meta["constant"][0]: tensors[one] for one in constants},
        state=state,
        constant_contents={},
        in_spec=nothing,
        out_spec=nothing,
        symbols=Symbols(),
        constraints={} if dynamic is None else dynamic.node.shape_env.var_to_range,
        pipeline=(),
    )


def _is_slot(node: fx.Node, tensor: torch.Tensor) -> bool:
    """Return whether a refit sets this tensor: several floating-point numbers that are certainly a weight.

    A partition does not distinguish a model's buffers from its constants, so of those only BatchNorm statistics count.
    What torch_tensorrt folded may be a mask as well as a weight; and a converter may read a single number.
    """
    if not tensor.is_floating_point() or tensor.numel() < 2 or str(node.target).startswith(_FOLDED):
        return False
    return isinstance(tensor, torch.nn.Parameter) or all("batch_norm" in str(user.target) for user in node.users)


_PACKAGE = "torch_tensorrt"
_PLUGINS = f"{_PACKAGE}.dynamo.conversion.plugins"
"""Converters of this package wrap the user's own kernels, whose code they do not contain."""


def converters_of(module: fx.GraphModule, registry: Any) -> dict[fx.Node, Any]:
    """Return the converter that torch_tensorrt would choose for each call, unless its version identifies it.

    The registry searches all its converters to choose one, 0.1 ms per call. Calls of torch's operators that only have
    torch_tensorrt's own converters are therefore left out: whichever is chosen, the version identifies it.
    ``registry`` is ``DYNAMO_CONVERTERS``, set to the compilation's settings.
    """
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    covered = {target for target in {node.target for node in calls} if _is_covered(target, registry)}
    found = ((node, registry.get(node)) for node in calls if node.target not in covered)
    return {node: packet[0] for node, packet in found if packet}


def _is_covered(target: Any, registry: Any) -> bool:
    """Return whether torch_tensorrt's version identifies every possible converter of an operator."""
    if isinstance(target, torch._ops.OpOverload) and is_foreign(target, ()):
        return False
    tables = getattr(registry, "registries", None)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return False  # a registry of an unknown form
    candidates: list[Any] = []
    for entry in (table[target] for table in tables if target in table):
        several = isinstance(entry, (list, tuple))
        candidates += [getattr(one, "converter_implementation", None) for one in entry] if several else [entry]
    return None not in candidates and all(_within(one, _PACKAGE) for one in candidates)


def converters_document(converters: Mapping[fx.Node, Any]) -> dict[str, Json]:
    """Return the foreign converters: operator -> name of the converter, and digest of its code, or several of these.

    Raises:
        CanonicalizationError: a converter has no digest.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for node, converter in converters.items():
        if _within(converter, _PACKAGE):
            continue
        name = f"{getattr(converter, '__module__', '')}.{getattr(converter, '__qualname__', type(converter).__name__)}"
        found.setdefault(str(node.target), set()).add((name, str(converter_digest(converter))))
    # Which of several converts a node depends on its arguments.
    return {
        target: list(min(pairs)) if len(pairs) == 1 else [list(pair) for pair in sorted(pairs)]
        for target, pairs in found.items()
    }


def declared_operators(converters: Mapping[fx.Node, Any]) -> set[str]:
    """Return the custom operators whose converters are in the key, by torch_tensorrt's version or their own digest.

    A plugin's converter does not show the kernel it wraps, so its operator is not among them.
    """
    return {
        node.target._schema.name
        for node, converter in converters.items()
        if isinstance(node.target, torch._ops.OpOverload) and not _within(converter, _PLUGINS)
    }


def _within(converter: Any, package: str) -> bool:
    module = str(getattr(converter, "__module__", ""))
    return module == package or module.startswith(f"{package}.")
