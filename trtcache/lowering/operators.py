"""Operators by name: readable names of their calls, and what identifies the implementation of each in a key.

torch's version identifies torch's own operators. A custom operator has the version that the settings declare, or else
that of the installed distributions whose files hold its kernels, with the digests of these files. One that has neither
stays in torch: user code, an editable install, a kernel whose file is unknown.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import inspect
import json
import logging
import math
import mmap
import operator
import os
import re
import secrets
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, Json

if TYPE_CHECKING:
    import torch


log = logging.getLogger("trtcache.keys")

LIVE_ENGINE = "trtcache::execute_engine"
"""The operator that runs an engine of this process."""

LIVE_PREFIX = "live:"
"""How the handle of such an engine begins."""

TORCHS_OWN = frozenset(
    (
        *("aten", "prim", "prims", "quantized", "quantized_decomposed", "mkldnn", "mkl", "rngprims", "inductor"),
        "_c10d_functional",
    )
)
"""Namespaces of operators that torch's version identifies."""

_KERNEL = re.compile(r"(\w+)(?:\[alias\])?(?: \(inactive\))?: registered at (.+):(\d+) :: .*")
"""A line of ``torch._C._dispatch_dump``: dispatch key, file and line of the registration."""


def called_operators(program: torch.export.ExportedProgram) -> list[torch._ops.OpOverload]:
    """Return the operators that an exported program calls."""
    from torch._ops import OpOverload

    targets = {node.target for node in all_nodes(program.graph_module)}
    return [target for target in targets if isinstance(target, OpOverload)]


def is_foreign(target: torch._ops.OpOverload, declared: Collection[str]) -> bool:
    """Return whether neither torch's version nor a ``declared`` version identifies an operator's implementation."""
    return not (target.namespace in TORCHS_OWN or {target.namespace, target._schema.name} & set(declared))


def why_unknown(target: torch._ops.OpOverload, declared: Collection[str]) -> str | None:
    """Return why an operator's implementation is unidentified, or None; engine handles belong to one process."""
    name = target._schema.name
    if name == LIVE_ENGINE:
        return "it is an engine of this process; compile the model without"
    if not is_foreign(target, declared):
        return None
    return (
        f"custom operator {name} can change without its name doing so; "
        f"declare its version: settings={{'operator_versions': {{{name!r}: '1'}}}}"
    )


def all_nodes(graph_module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes of a graph and of its subgraphs, such as blocks of ``no_grad`` and autocast."""
    import torch

    graphs = [one.graph for one in graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    return [node for graph in graphs for node in graph.nodes]


def live_engines(graph_module: torch.fx.GraphModule) -> frozenset[str]:
    """Return the handles of the engines of this process that a graph calls, and those that its subgraphs call."""
    import torch

    handles: set[str] = set()
    for node in all_nodes(graph_module):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name == LIVE_ENGINE:
            handles.add(str(node.kwargs["engine"] if "engine" in node.kwargs else node.args[2]))
    return frozenset(one for one in handles if one.startswith(LIVE_PREFIX))


def identify_operators(targets: Iterable[object], declared: Collection[str] = ()) -> dict[str, Json]:
    """Return what identifies the custom operators of installed distributions that have no declared version.

    Args:
        targets: what nodes of a graph call.
        declared: operators and namespaces whose version is declared; those are left out.

    Returns:
        Name of the operator with its overload (``mylib::scale``, ``mylib::scale.out``) -> the versions of the
        distributions whose files hold its kernels, and the digests of these files. An operator with an overload that
        has a kernel from elsewhere is left out.
    """
    import torch

    found: dict[str, Json] = {}
    unknown: set[str] = set()
    for target in {one for one in targets if isinstance(one, torch._ops.OpOverload)}:
        if not is_foreign(target, declared) or target._schema.name == LIVE_ENGINE:
            continue
        try:
            found[target._name] = _describe(*_kernel_files(target))
        except (ValueError, OSError, AttributeError, RuntimeError) as error:  # the last two: another version of torch
            log.debug("custom operator %s has no version of its own: %s", target._name, error)
            unknown.add(target._schema.name)
    return {name: found[name] for name in sorted(found) if name.partition(".")[0] not in unknown}


def refuse_replaced_kernels(targets: Iterable[torch._ops.OpOverload] | None = None) -> None:
    """Refuse operators of torch with a kernel that a Python file registered which is not torch's own.

    Kernels in an operator's own table, of ``py_impl``, do not count: eager torch does not call those.

    Args:
        targets: the operators to look at. By default all of ATen with a kernel from Python, but for those that only
            compute shapes, of which torch itself registers over a thousand.

    Raises:
        ValueError: there are some; the message names them.
    """
    import torch

    if targets is None:
        # Such as "aten/add.Tensor/CPU".
        registered = [one for one in torch.library._impls if one.startswith("aten/") and not one.endswith("/Meta")]
        own = {one.replace("/", "."): "aten::" + one.split("/")[1] for one in registered}
    else:
        own = {str(one): one._name for one in targets if one.namespace in TORCHS_OWN}
    if replaced := sorted(one for one, name in own.items() if _names_other_files(torch._C._dispatch_dump(name))):
        raise ValueError(f"{', '.join(replaced)} has a kernel in Python that is not torch's own")


def replaced_functions() -> dict[str, Json]:
    """Return the functions from elsewhere in torch's own tables of what replaces torch's operators.

    The tables are those of decompositions and of Inductor's lowerings. An operator without an entry from elsewhere may
    be decomposed into one that has one, so this is a state of the process and not of a program.

    Returns:
        Table and operator -> what identifies the function: the versions of the installed distributions that it belongs
        to with the digests of their files, or else a number of this process, so that it is another one elsewhere.
    """
    import torch

    found: dict[str, Json] = {}
    tables = list(_tables())
    if _are_of_torch([function for _, table in tables for function in list(table.values())]):
        return found
    for name, table in tables:
        for target, function in list(table.items()):
            if _are_of_torch([function]):
                continue
            # The identity of a custom operator has what replaces it: ``identify_operators``.
            is_operator = isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
            if not is_operator or str(target).partition(".")[0] in TORCHS_OWN:
                found[f"{name} {target}"] = _describe_or_number(function)
    return dict(sorted(found.items()))


def identify_file(file: str) -> Json:
    """Return what identifies a file of an installed distribution: the distribution's version, and the file's digest.

    Raises:
        ValueError: it belongs to no distribution, or to an editable one.
    """
    return _describe((file,), ())


def operators_are_unchanged(identities: Mapping[str, Json]) -> bool:
    """Return whether operators have the same identities in this process as when they were recorded."""
    return identify_operators(list(map(find_overload, identities))) == identities


def find_overload(name: str) -> Any:
    """Return the operator of a qualified name, such as ``mylib::scale.out``; None if it is not registered."""
    import torch

    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return getattr(packet, overload or "default", None)


def operator_names(identities: Mapping[str, Json]) -> set[str]:
    """Return the operators of some identities without their overloads, as ``declared`` takes them."""
    return {name.partition(".")[0] for name in identities}


_ARITHMETIC = frozenset({operator.add.__module__, math.sqrt.__module__, "torch"})


def is_arithmetic(target: object) -> bool:
    """Return whether a function that is not an operator of torch does nothing but compute, as those on sizes do."""
    return target is round or getattr(target, "__module__", None) in _ARITHMETIC


def operator_name(target: object) -> str:
    """Return ``aten.add.Tensor`` for an operator and ``_operator.mul`` for a function."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


class NodeNames:
    """Assigns names to nodes in canonical order: ``softmax_1``, ``in0``, ``w3``."""

    def __init__(self) -> None:
        """Start without names."""
        self._seen: Counter[str] = Counter()

    def call(self, operator: str) -> str:
        """Return the name of the next call of an operator: ``softmax``, ``softmax_1``.

        It is the operator's base name, ``softmax`` for ``aten._softmax.default``. A custom operator may be given by its
        schema.
        """
        path = operator.partition("(")[0].replace("::", ".")
        parts = [part for part in path.split(".") if part]
        base = (parts[1] if len(parts) > 1 else path).strip("_") or operator
        self._seen[base] += 1
        return f"{base}_{self._seen[base] - 1}" if self._seen[base] > 1 else base

    def number(self, letter: str) -> str:
        """Return the name of the next weight or constant: ``w0``, ``w1``."""
        self._seen[letter] += 1
        return f"{letter}{self._seen[letter] - 1}"


def _kernel_files(target: torch._ops.OpOverload) -> tuple[set[str], set[str]]:
    """Return the files that hold the kernels of an operator, and those of whose distribution any file may hold one.

    Raises:
        ValueError: the file of a kernel is unknown; the message says why.
    """
    import torch
    from torch._library import custom_ops

    # What traced functions call, in any file of their package, is compiled into the engine: torch.library.triton_op.
    libraries = _files_of(_traced_functions(target))
    files = _files_of(_python_functions(target)) | libraries
    has_functions = bool(files)
    _, _, kernels = torch._C._dispatch_dump(target._name).partition("alias analysis kind: ")
    for line in kernels.splitlines()[1:]:
        match = _KERNEL.fullmatch(line)
        if match is None:
            raise ValueError(f"torch lists its kernels in an unknown form: {line}")
        key, file, number = match.groups()
        # Kernels for these keys run when a program is exported, which has their results.
        at_export = key.startswith(("Autocast", "Autograd", "Meta"))
        if _is_torchs(file):
            if file != custom_ops.__file__ and not (at_export and not _is_impl(int(number))):
                raise ValueError(f"its kernel for {key} was registered without a library of its own")
        elif not file.endswith(".py"):
            files |= _libraries_with(file)
        # ``file`` created a Library, and the kernel, of which torch keeps no trace, is likely in the same package.
        # A program may register its own functions with it as well: then its fake kernel is in no distribution.
        elif has_functions or at_export:
            libraries.add(file)
        else:
            raise ValueError(f"its kernel for {key} was registered with a library of {file}, and it has no fake kernel")
    if not files:
        raise ValueError("it has no kernel whose file is known")
    return files, libraries


def _python_functions(target: torch._ops.OpOverload) -> list[object]:
    """Return the Python functions that torch knows for an operator.

    Fake kernels count as well: an engine has the sizes that they return. A backward does not.

    Raises:
        ValueError: it was defined with ``torch.library.custom_op``, and its definition is gone.
    """
    import torch
    from torch._library import custom_ops, simple_registry

    entry = simple_registry.singleton.find(target._name)
    functions: list[object] = [*target.py_kernels.values(), *(kernel.func for kernel in entry.fake_impl.kernels)]
    definition: Any = custom_ops.OPDEFS.get(target._name)
    if definition is not None:
        functions += [definition._init_fn, definition._abstract_fn, definition._vmap_fn]
        functions += definition._backend_fns.values()
    elif f"registered at {custom_ops.__file__}:" in torch._C._dispatch_dump(target._name):
        raise ValueError("its definition is gone")
    return functions


def _traced_functions(target: torch._ops.OpOverload) -> list[object]:
    """Return the Python functions that replace an operator by what they call: decompositions, Inductor's lowerings."""
    from torch._library import custom_ops, simple_registry

    entry = simple_registry.singleton.find(target._name)
    functions: list[object] = [*entry.torch_dispatch_rules._data.values()]
    definition: Any = custom_ops.OPDEFS.get(target._name)
    if definition is not None:
        functions += definition._torch_dispatch_fns.values()
    return [*functions, *(table[target] for _, table in _tables() if target in table)]


def _tables() -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield torch's tables of what replaces an operator: decompositions and Inductor's lowerings, with their names."""
    import torch

    yield from torch._decomp.global_decomposition_table.items()
    for module, names in {"lowering": ("lowerings", "user_lowerings"), "decomposition": ("decompositions",)}.items():
        # Only a process that imported these modules has registered anything there.
        loaded = sys.modules.get(f"torch._inductor.{module}")
        yield from ((name, getattr(loaded, name, {})) for name in names)


_OF_TORCH: dict[int, object] = {}
"""Functions found to be torch's own, by ``id``; they are kept, so that no other object has it."""
_PROCESS = secrets.token_hex(16)
_NUMBERED: list[object] = []  # kept, so that no other object is taken for one of them


def number_in_process(value: object) -> str:
    """Return what identifies an object in this process, and is another one in each process."""
    if not any(one is value for one in _NUMBERED):
        _NUMBERED.append(value)
    return f"{_PROCESS} {next(number for number, one in enumerate(_NUMBERED) if one is value)}"


def _are_of_torch(functions: Iterable[object]) -> bool:
    """Return whether functions, what they wrap, and the functions in their closures are torch's own."""
    new = {id(function): function for function in functions if id(function) not in _OF_TORCH}
    try:
        files = _files_of(new.values())
    except ValueError:
        return False
    if not files:
        _OF_TORCH.update(new)
    return not files


def _describe_or_number(function: object) -> Json:
    """Return what identifies a function of an installed distribution, or else a number of this process."""
    try:
        return _describe((), _files_of([function]))
    except (ValueError, OSError):
        return number_in_process(function)


@functools.lru_cache(maxsize=4096)
def _names_other_files(kernels: str) -> bool:
    """Return whether a list of kernels has one that a Python file registered which is not torch's, or is unknown."""
    import torch

    matches = filter(None, map(_KERNEL.fullmatch, kernels.splitlines()))
    places = [(file, int(number)) for _, file, number in (match.groups() for match in matches) if file.endswith(".py")]
    return any(not _is_torchs(file) or (file == torch.library.__file__ and _is_impl(line)) for file, line in places)


def _is_impl(line: int) -> bool:
    """Return whether a line of torch's ``library.py`` is in ``torch.library.impl``, which hides its function."""
    import torch

    lines, first = inspect.getsourcelines(torch.library._impl)
    return first <= line < first + len(lines)


def _files_of(functions: Iterable[object]) -> set[str]:
    """Return the files of functions, of what they wrap, and of functions in their closures; torch's and Python's not.

    Raises:
        ValueError: one is not a plain function, or its file has other code than this process.
    """
    files, own = set[str](), set[str]()
    seen: set[int] = set()
    left: list[Any] = list(functions)
    while left:  # over two thousand at the first look-up of a process
        function = left.pop()
        if id(function) in seen:
            continue
        if type(function) is FunctionType:
            file = function.__code__.co_filename
            if file not in own:
                if _is_torchs(file) or is_standard_library(file):
                    own.add(file)
                elif _parts_of(function.__code__) in _codes_of(file, *_state(file)):
                    files.add(file)
                else:
                    raise ValueError(f"{file} was changed after it was imported")
            if function.__closure__:
                left += gc.get_referents(*function.__closure__)  # what the cells contain
            if function.__dict__:
                left.append(function.__dict__.get("__wrapped__"))
        elif callable(function) and not isinstance(function, type) and not _is_of_library(function):
            raise ValueError(f"{function!r} is not a plain function")
        seen.add(id(function))
    return files


def _is_of_library(function: Any) -> bool:
    """Return whether a callable that is no plain function is Python's or torch's, or a partial of torch's functions."""
    if type(function) is functools.partial:
        return not _files_of([function.func, *function.args, *function.keywords.values()])
    is_builtin = type(function) is BuiltinFunctionType
    package = ((function if is_builtin else type(function)).__module__ or "builtins").partition(".")[0]
    return package in {"torch", "builtins"} or (is_builtin and package in sys.stdlib_module_names)


@functools.lru_cache(maxsize=64)
def _codes_of(file: str, size_bytes: int, modified_ns: int) -> frozenset[object]:
    """Return all functions' code in a source file, as ``_parts_of`` describes it."""
    del size_bytes, modified_ns  # a changed file is read again
    whole = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    found: list[CodeType] = [whole]
    for code in found:
        found += [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(map(_parts_of, found))


def _parts_of(code: CodeType) -> object:
    """Return what two code objects of one source have in common; ``==`` differs once the interpreter adapted one."""
    constants = tuple(_parts_of(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_qualname, code.co_firstlineno, code.co_code, code.co_names, code.co_varnames, constants


def _libraries_with(source: str) -> set[str]:
    """Return the loaded shared libraries that were built from a C++ file: they contain its name for error messages.

    Raises:
        ValueError: there is none.
    """
    name = source.encode() + b"\0"
    if found := {path for path in _loaded_libraries() if _contains(path, *_state(path), name)}:
        return found
    raise ValueError(f"no library that is loaded was built from {source}")


def _loaded_libraries() -> set[str]:
    """Return the shared libraries of this process without torch's and Python's; a replaced file is none of them."""
    import torch

    maps = Path("/proc/self/maps")
    if maps.exists():
        lines = (line.split(maxsplit=5) for line in maps.read_text(errors="surrogateescape").splitlines())
        paths = {line[5] for line in lines if len(line) == 6}
    else:
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        paths = {*torch.ops.loaded_libraries, *filter(None, modules)}
    found = {path for path in paths if re.search(r"\.(so|dylib|dll|pyd)(\.[\d.]+)?$", path)}
    return {path for path in found if not _is_torchs(path)}


@functools.lru_cache(maxsize=1024)
def _contains(path: str, size_bytes: int, modified_ns: int, content: bytes) -> bool:
    """Return whether a file contains some bytes."""
    del modified_ns  # a changed file is read again
    if not size_bytes:
        return False
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(content) >= 0


@frozen_dataclass
class _Distribution:
    """An installed distribution.

    Attributes:
        name, version: its name and version.
        folder: the directory that its files are relative to.
        files: its files, as it lists them.
        is_editable: whether its code may change under its version.
    """

    name: str
    version: str
    folder: str
    files: frozenset[str]
    is_editable: bool


@functools.cache
def _owners(file: str) -> tuple[_Distribution, ...]:
    """Return the installed distributions that list a file."""
    real = os.path.realpath(file)
    owners = []
    for root in sorted({os.path.realpath(one) for one in sys.path}):
        line = f"\n{Path(real).relative_to(root).as_posix()}," if real.startswith(root + os.sep) else None
        for one, record in _records(root) if line else ():
            if line and line in record:
                origin = json.loads(one.read_text("direct_url.json") or "{}")
                is_editable = bool(origin.get("dir_info", {}).get("editable"))
                files = frozenset(line.rsplit(",", 2)[0] for line in record.splitlines())
                owners.append(_Distribution(one.metadata["Name"], one.version, root, files, is_editable))
    return tuple(owners)


@functools.cache
def _records(root: str) -> tuple[tuple[importlib.metadata.Distribution, str], ...]:
    """Return the distributions in a directory that list their files, with the lists."""
    listed = [(one, one.read_text("RECORD")) for one in importlib.metadata.distributions(path=[root])]
    return tuple((one, f"\n{record}".replace("\r", "")) for one, record in listed if record)


def _describe(files: Collection[str], libraries: Collection[str]) -> Json:
    """Return the versions of the distributions that files belong to, and the files' digests.

    Raises:
        ValueError: a file belongs to no distribution, or to an editable one.
    """
    versions: dict[str, Json] = {}
    digests: dict[str, Json] = {}
    for file in sorted({*files, *libraries}):
        owners = _owners(file)
        if not owners or any(one.is_editable for one in owners):
            raise ValueError(f"{file} belongs to no installed distribution, or to an editable one")
        digests[Path(os.path.realpath(file)).relative_to(owners[0].folder).as_posix()] = _digest(file)
        for owner in owners:
            versions[owner.name] = owner.version
            if file in libraries:
                modules = sorted(
                    one for one in owner.files if one.endswith(".py") and Path(owner.folder, one).is_file()
                )
                listed = [f"{one} {_digest(str(Path(owner.folder, one)))}" for one in modules]
                digests[f"{owner.name}: *.py"] = str(Digest.of("\n".join(listed).encode()))
    return {"distributions": versions, "files": digests}


def _digest(file: str) -> str:
    return _digest_of(file, *_state(file))


@functools.lru_cache(maxsize=4096)
def _digest_of(file: str, size_bytes: int, modified_ns: int) -> str:
    del size_bytes, modified_ns  # a changed file is read again
    return str(Digest.of_file(file))


def _state(file: str) -> tuple[int, int]:
    """Return a file's size and the time of its last change.

    Raises:
        ValueError: it does not exist, or cannot be read.
    """
    try:
        status = os.stat(file)  # noqa: PTH116  # also of names that are no paths, as <string>
    except OSError as error:
        raise ValueError(f"{file} is not a file that can be read") from error
    return status.st_size, status.st_mtime_ns


def _is_torchs(file: str) -> bool:
    return file.startswith(_torchs_folder())


@functools.cache
def _torchs_folder() -> str:
    import torch

    return os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120  # torch's own spelling


@functools.lru_cache(maxsize=1024)
def is_standard_library(file: str) -> bool:
    """Return whether a source file belongs to Python's standard library, such as a decorator's."""
    return file.startswith(sysconfig.get_path("stdlib") + os.sep) and "-packages" not in file


_OURS = f"{Path(__file__).parents[1]}{os.sep}"


@functools.lru_cache(maxsize=1024)
def code_owner(file: str) -> Literal["python", "torch", "trtcache", "generated", "model"]:
    """Return whose code a frame with this file runs; ``generated`` is code without a file (``<string>``)."""
    if file.startswith("<frozen ") or is_standard_library(file):
        return "python"
    if file.startswith("<"):
        return "generated"
    if _is_torchs(file):
        return "torch"
    return "trtcache" if file.startswith(_OURS) else "model"
