"""``export_context``: what torch.export changes around ``forward``, for other runs of a model.

A model's code can notice all of it: modes of functions, flags, replaced built-in functions, and objects that stand for
its modules. What cannot be imitated turns direct mode off (``NotComparableError``).
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import _symbolic_trace as tracer
from torch.fx.experimental.proxy_tensor import (
    _ModuleNotInstalledAsSubmoduleError,
    _ModuleStackTracer,
    _pytree_subclasses_that_lose_info,
)
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode
from torch.utils import _config_module as config_module
from torch.utils import _pytree as pytree

from trtcache.frontends.direct import NotComparableError
from trtcache.lowering import patch_attributes

TORCH_FOLDER = f"{torch.__path__[0]}/"
OUR_FOLDER = f"{Path(__file__).parents[2]}/"
OWN_FOLDERS = (TORCH_FOLDER, OUR_FOLDER)
"""Where the code of torch and of trtcache is."""
NoteFunction = Callable[[Any, Any, Mapping[str, Any], Any], None]
"""Called with a function of torch, its arguments, keyword arguments and result."""

_DROPOUT = torch.nn.functional.dropout
_NEVER_THE_SAME = frozenset({torch.Tensor.contiguous, _DROPOUT, torch.dropout})
_CALLED_BY_EXPORTS = (
    *("buffers", "children", "get_buffer", "get_parameter", "get_submodule", "modules", "named_buffers"),
    *("named_children", "named_modules", "named_parameters", "parameters"),
)
_ASK_FOR_TRUTH = frozenset({torch.Tensor.__bool__, torch.is_nonzero, torch.Tensor.is_nonzero})
_ASK_FOR_HISTORY = frozenset(
    {
        *(getattr(torch.Tensor, name).__get__ for name in ("_base", "grad_fn")),
        *(
            getattr(torch.Tensor, name)
            for name in ("_is_view", "_typed_storage", "data_ptr", "storage", "untyped_storage")
        ),
    }
)
_SET_DATA = vars(torch._C.TensorBase)["data"].__set__
_ASK_FOR_STRIDES = frozenset({torch.Tensor.stride, torch.Tensor.dim_order})
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type, FunctionType, torch.Tensor, nn.Parameter})
_CONTAINERS = frozenset({list, tuple, dict})
_COMPARED_BY = ("__len__", "__getitem__", "__iter__")
_MOST_NESTED = 20
_OF_MODULES = vars(nn.Module()).keys()
_GLOBAL_HOOKS = tuple(
    name for name in vars(hooks) if name.startswith("_global") and isinstance(vars(hooks)[name], dict)
)


_call_from_export: Any = eval(  # noqa: S307  # code that looks for torch.export among its callers finds it
    compile("lambda called, /, *args, **kwargs: called(*args, **kwargs)", f"{TORCH_FOLDER}export/_trace.py", "eval")
)


def require_exportable(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check what torch.export asks of a model before it runs it, and what it runs that a replay does not.

    Raises:
        NotComparableError: an export fails, or other code is run in it: a hook of all modules, a method of
            ``torch.nn.Module`` that was replaced.
        TypeError, ValueError: the arguments are not those of ``forward``.
    """
    forward = model.forward
    if not hasattr(forward.func if isinstance(forward, functools.partial) else forward, "__code__"):
        raise NotComparableError(f"forward is a {type(forward).__qualname__}, which torch.export does not call")
    inspect.signature(forward).bind(*args, **kwargs)
    for name in _GLOBAL_HOOKS:
        if getattr(hooks, name):
            raise NotComparableError("there is a hook of all modules, also of one of torch.export's")
    for name, value in vars(nn.Module).items():
        if callable(value) and not _is_of_torch(value) and name in _names_of_module():
            raise NotComparableError(f"torch.nn.Module.{name} was replaced")
    for path, module in model.named_modules():
        _require_plain_module(path, module)
    if _has_numbers_in_objects((args, dict(kwargs))):
        raise NotComparableError("an argument is an object with numbers, which torch.export makes again with others")


def _require_plain_module(path: str, module: nn.Module) -> None:
    """Check what an export, or what follows it, does with one module of a model.

    Raises:
        NotComparableError: it can fail, or run code of the module's.
    """
    if repr(path)[1:-1] != path or '"' in path:
        raise NotComparableError(f"the name of module {path!r} cannot be written into a program's code")
    kind = type(module)
    if not isinstance(kind.__module__, str):
        raise NotComparableError(f"the class of module {path or 'the model'} has no __module__")
    if isinstance(module, torch.jit.ScriptModule):
        return
    if kind.__eq__ is not object.__eq__:
        raise NotComparableError(
            f"module {path or 'the model'} has a method __eq__ of its own: an export fails for equals"
        )
    for name in _CALLED_BY_EXPORTS:
        method = getattr(kind, name)
        if name in vars(module) or (method is not getattr(nn.Module, name) and not _is_of_torch(method)):
            raise NotComparableError(f"module {path or 'the model'} has a method {name} of its own")
    if any(name.startswith("lifted_tensor_") or "." in name for name in chain(vars(module), module._buffers)):
        raise NotComparableError("an attribute has a name that an export gives to another: lifted_tensor_..., or a dot")


def _is_of_torch(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return getattr(code, "co_filename", "").startswith(TORCH_FOLDER)


def _has_numbers_in_objects(value: Any) -> bool:
    """Return whether an object of a registered class, or a named tuple, has an int or a bool."""
    if pytree.tree_is_leaf(value):
        return False
    children, _ = pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)
    if type(value) not in _CONTAINERS and any(isinstance(child, int) for child in children):
        return True
    return any(map(_has_numbers_in_objects, children))


@functools.cache
def _names_of_module() -> frozenset[str]:
    """Return the names in torch's class ``torch.nn.Module``; libraries add others to it."""
    get_code: Any = hooks.__loader__
    code = get_code.get_code(hooks.__name__)
    (body,) = [one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == "Module"]
    return frozenset(body.co_names)


@contextmanager
def export_context(model: nn.Module, note_function: NoteFunction) -> Iterator[Callable[..., Any]]:
    """Change in the block what torch.export changes around ``forward``.

    Yields a function that calls the model as an export does, and returns the leaves and the structure of its results.

    Args:
        model: the model.
        note_function: is called after each function of torch that code calls, with its arguments and result.

    Raises:
        NotComparableError: at the end, if the model did what has other effects in an export.
    """
    root = nn.Module()
    root._export_root = model
    noted = list[str]()
    with ExitStack() as stack:
        stack.enter_context(_flags())
        stack.enter_context(_functions_of_python())
        stack.enter_context(_watched_options(noted))
        stack.enter_context(_traced_modules(_ModuleStackTracer(root)))  # type: ignore[arg-type]  # it takes any module
        _rebuild_attributes(model)
        stack.enter_context(_CalledFunctions())
        stack.enter_context(_Functions(noted, note_function))
        stack.enter_context(as_exported())
        stack.enter_context(torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.PreDispatch))  # without its modes
        yield functools.partial(_call_from_export, _call_and_flatten, root._export_root)
        _note_assignments(model, noted)
    if noted:
        raise NotComparableError(noted[0])


def _call_and_flatten(called: nn.Module, /, *args: Any, **kwargs: Any) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten(called(*args, **kwargs))


def copy_of_dropout(x: torch.Tensor) -> Any:
    """Return what dropout in eval mode returns in an export, which decomposes it into a copy.

    A copy has other strides if elements are not adjacent or overlap, such as those of a slice. If not, a view stands
    for it: it needs no operation in a trace.
    """
    adjacent = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)) if _has_fixed_sizes(x) else ():
        if size != 1 and stride != adjacent:
            return torch.ops.aten.clone.default(x)
        adjacent *= size
    return torch.ops.aten.alias.default(x)


def _has_fixed_sizes(x: torch.Tensor) -> bool:
    return not any(isinstance(size, torch.SymInt) for size in (*x.shape, *x.stride()))


class _CalledFunctions(TorchFunctionMode):
    """A mode that calls functions: in an export two are active, with which torch's attention has no fast path."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """The other mode: it notes what an export records above the operators that a trace has.

    Some functions return another tensor in an export where they return their argument without one.
    """

    def __init__(self, noted: list[str], note_function: NoteFunction) -> None:
        super().__init__()
        self._noted, self._note_function = noted, note_function
        self._modes, self._fake = torch._C._len_torch_dispatch_stack(), torch._C._get_dispatch_mode(_FAKE)
        self._kernels = _attention_kernels()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note_modes()
        if func is _ATTENTION and _attention_kernels() != self._kernels:
            self._noted.append("forward chooses the kernel of attention, which a program does not")
        if func in _ASK_FOR_HISTORY and not sys._getframe(1).f_code.co_filename.startswith(OWN_FOLDERS):
            self._noted.append("forward asks for the gradient function, the base or the memory of a tensor")
        if func == _SET_DATA:
            self._noted.append("forward assigns data of a tensor, which an export refuses")
        if func in _ASK_FOR_STRIDES and any(size == 1 for size in args[0].shape if isinstance(size, int)):
            self._noted.append("forward asks for the strides of single elements")
        name, kwargs = func.__name__, kwargs or {}  # an export fails without a name
        try:
            result = func(*args, **kwargs)
        except Exception:
            self._noted.append(f"forward catches an error of torch's {name}: an export has recorded the call")
            raise
        if func in _ASK_FOR_TRUTH and not isinstance(args[0], FakeTensor):
            self._noted.append("forward asks whether a constant tensor is true, which an export does not know")
        self._note_function(func, args, kwargs, result)
        in_place = func is _DROPOUT and (args[3:4] == (True,) or kwargs.get("inplace", False))
        if func in _NEVER_THE_SAME and args and result is args[0] and not in_place:
            return torch.ops.aten.alias.default(result) if func is torch.Tensor.contiguous else copy_of_dropout(result)
        return result

    def _note_modes(self) -> None:
        fake = torch._C._get_dispatch_mode(_FAKE)
        if torch._C._len_torch_dispatch_stack() > self._modes or (fake is not None and fake is not self._fake):
            self._noted.append("forward enters a TorchDispatchMode")
        transform = torch._C._functorch.peek_interpreter_stack()
        if transform is not None and transform.key() != torch._C._functorch.TransformType.Vmap:
            self._noted.append("forward uses a transform of torch.func")


def _attention_kernels() -> list[bool]:
    cuda: Any = torch.backends.cuda
    return [bool(getattr(cuda, f"{name}_sdp_enabled")()) for name in ("flash", "mem_efficient", "math", "cudnn")]


@contextmanager
def _flags() -> Iterator[None]:
    """Let the model's code, and torch's, take the paths in the block that they take in an export."""
    of_thread = getattr(tracer, "_is_fx_tracing_tls", None)  # from torch 2.14 on
    traced = (tracer, "_is_fx_tracing_flag") if of_thread is None else (of_thread, "flag")
    compiling = patch_attributes(torch.compiler, _is_compiling_flag=True, _is_exporting_flag=True)
    with compiling, patch_attributes(traced[0], **{traced[1]: True}):
        yield


@contextmanager
def _functions_of_python() -> Iterator[None]:
    """Let ``max`` and ``min`` take tensors in the block, and ``math.pow`` be ``**``."""
    largest = functools.partial(_extreme, real_callable=max, tensor_callable=torch.maximum)
    smallest = functools.partial(_extreme, real_callable=min, tensor_callable=torch.minimum)
    with patch_attributes(builtins, max=largest, min=smallest), patch_attributes(math, pow=lambda x, y: x**y):
        yield


def _extreme(*args: Any, real_callable: Any, tensor_callable: Any, **kwargs: Any) -> Any:
    """Return the largest or smallest value; torch finds that of tensors."""
    if len(args) == 1 and not kwargs and not isinstance(args[0], torch.Tensor) and hasattr(args[0], "__iter__"):
        args = (list(args[0]),)
    values = [*args, *chain(*(one for one in args if type(one) is list))]
    if not kwargs and (args == ([],) or any(isinstance(one, torch.Tensor) for one in values)):
        from torch._export.non_strict_utils import _tensor_min_max  # takes a second

        return _tensor_min_max(*args, real_callable=real_callable, tensor_callable=tensor_callable)  # type: ignore[no-untyped-call]
    return real_callable(*args, **kwargs)


@contextmanager
def _watched_options(noted: list[str]) -> Iterator[None]:
    """Note if code reads an option of Dynamo in the block: an export sets some of them."""
    read: Any = config_module.ConfigModule.__getattr__

    def read_option(config: Any, name: str) -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename == config_module.__file__:  # it reads one option for another
            frame = frame.f_back
        if config.__name__ == "torch._dynamo.config" and not frame.f_code.co_filename.startswith(TORCH_FOLDER):
            noted.append("forward reads an option of Dynamo, which an export sets")
        return read(config, name)

    with patch_attributes(config_module.ConfigModule, __getattr__=read_option):
        yield


@contextmanager
def _traced_modules(proxies: _ModuleStackTracer) -> Iterator[None]:
    """Let modules be called in the block as torch.fx calls them when it traces.

    The tracer keeps a stack of modules, which an exception that is caught leaves in disorder, and looks modules up by
    their hashes. If a module has two names, attributes that are modules are proxies: other objects, of derived classes.
    Functions of ``torch.fx.wrap`` are replaced.
    """
    read, call = tracer._orig_module_getattr, tracer._orig_module_call

    @functools.wraps(read)
    def module_getattr_wrapper(mod: nn.Module, attr: str) -> Any:
        value = read(mod, attr)
        return proxies.getattr(attr, value, {}) if proxies.enable_attr_proxy else value

    @functools.wraps(call)
    def module_call_wrapper(mod: nn.Module, *args: Any, **kwargs: Any) -> Any:
        def call_original(*args: Any, **kwargs: Any) -> Any:
            return call(mod, *args, **kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:  # an export has this frame, too, which a recursion can notice
            return call_original(*args, **kwargs)

        tracer._autowrap_check(patcher, getattr(getattr(mod, "forward", mod), "__globals__", {}), set())
        if isinstance(mod, torch.fx.GraphModule) or type(mod).__module__ == "torch._dynamo.eval_frame":
            return forward(*args, **kwargs)
        try:
            return tracer.Tracer.call_module(proxies, mod, forward, args, kwargs)
        except _ModuleNotInstalledAsSubmoduleError:
            return forward(*args, **kwargs)

    with tracer._new_patcher() as patcher:
        patcher.patch_method(nn.Module, "__getattr__", module_getattr_wrapper, deduplicate=False)
        patcher.patch_method(nn.Module, "__call__", module_call_wrapper, deduplicate=False)
        tracer._patch_wrapped_functions(patcher)
        yield


def _rebuild_attributes(model: nn.Module) -> None:
    """Rebuild containers among the attributes of modules as an export does, which calls their constructors.

    Raises:
        NotComparableError: containers are nested deeply, or contain themselves.
        Exception: a class cannot be rebuilt; an export fails as well.
    """
    for _, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _OF_MODULES and not _is_simple(value, 0):
                pytree.tree_map(lambda leaf: leaf, value, is_leaf=_loses_content)


def _loses_content(value: Any) -> bool:
    return type(value) in _pytree_subclasses_that_lose_info


def _is_simple(value: Any, depth: int) -> bool:
    """Return whether a value is rebuilt without effects: it is no container, or one of plain values.

    Raises:
        NotComparableError: it has containers in containers in containers, or in itself.
    """
    kind = type(value)
    if kind in _PLAIN or kind is torch.Size or isinstance(value, nn.Module):
        return True
    if kind is torch.ScriptObject:
        raise NotComparableError("an attribute is an object of TorchScript, such as a packed weight")
    if kind not in _CONTAINERS:
        base: Any = list if isinstance(value, list) else tuple
        if isinstance(value, base) and any(getattr(kind, one) is not getattr(base, one) for one in _COMPARED_BY):
            raise NotComparableError(f"an attribute is of class {kind.__qualname__}, whose items an export compares")
        return pytree.tree_is_leaf(value)
    if depth == _MOST_NESTED:
        raise NotComparableError("an attribute is a container that is nested deeply, or contains itself")
    items = value.values() if kind is dict else value
    if kind is dict:  # an export formats the keys
        for key in value:
            if type(key) not in _PLAIN:
                repr(key)
    return set(map(type, items)) <= _PLAIN or all(_is_simple(one, depth + 1) for one in items)


def _note_assignments(model: nn.Module, noted: list[str]) -> None:
    """Note if an export warns of an attribute that was assigned, and warnings are errors."""
    if not _warnings_are_errors():
        return
    for _, module in model.named_modules():
        values = [value for name, value in vars(module).items() if name not in _OF_MODULES]
        if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(values)):
            noted.append("forward assigns a tensor to an attribute, of which an export warns, and warnings are errors")


def _warnings_are_errors() -> bool:
    """Return whether a ``UserWarning`` can be an error."""
    for action, message, kind, module, line in warnings.filters:
        if issubclass(UserWarning, kind):
            if action == "error":
                return True
            if message is None and module is None and line == 0:  # the first filter that matches decides
                return False
    return False


@contextmanager
def as_exported() -> Iterator[None]:
    """Let operators be decomposed in the block as in an export, on which backends and caches have no influence.

    Autocast converts a weight at each use, and no operator is that of a backend's library.
    """
    backends: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.nnpack, torch.backends.cudnn)
    were_enabled = [backend.set_flags(False) for backend in backends]
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
        for backend, options in zip(backends, were_enabled, strict=True):
            backend.set_flags(*options)
