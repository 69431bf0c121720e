"""Programs that a test suite exports, and the inputs that it calls them with.

A suite's own ``torch.export.export`` is replaced before its files are imported. Each export is kept with copies of the
model and the example inputs, since tests change both; whether the test passes does not matter.
"""

from __future__ import annotations

import copy
import functools
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPORT = torch.export.export
COMPILE = torch.compile

_PROGRAMS = 6  # of one test: a few loop over dozens
_CALLS = 12


@dataclass
class Case:
    """A model with example inputs, and what else it was called with."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)


class Recorder:
    """Collect the cases of one test at a time."""

    def __init__(self) -> None:
        """Start without cases."""
        self.cases: list[Case] = []
        self.is_rewritten = (
            False  # whether tests call modules with the inputs of a graph that a stand-in did not rewrite
        )
        self._is_active = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Collect what is exported in this block, after forgetting what was collected before."""
        self.cases, self._is_active = [], True
        try:
            yield
        finally:
            self._is_active = False

    def install(self) -> None:
        """Replace ``torch.export.export`` and AOTInductor's packaging for the life of this process."""
        torch.export.export = self.export
        module = torch.export.ExportedProgram.module
        decompose = torch.export.ExportedProgram.run_decompositions

        @functools.wraps(module)
        def recorded_module(program: torch.export.ExportedProgram, *args: Any, **kwargs: Any) -> torch.nn.Module:
            result = module(program, *args, **kwargs)
            case = getattr(program, "_peers_case", None)
            # A test may change the graph before it calls it: its inputs are then another program's.
            is_same = case is not None and program._peers_code == program.graph_module.code
            return self.observe(result, case) if self._is_active and is_same else result

        @functools.wraps(decompose)
        def recorded_decompose(program: torch.export.ExportedProgram, *args: Any, **kwargs: Any) -> Any:
            result = decompose(program, *args, **kwargs)
            _mark(result, getattr(program, "_peers_case", None))
            return result

        torch.export.ExportedProgram.module = recorded_module  # type: ignore[method-assign]
        torch.export.ExportedProgram.run_decompositions = recorded_decompose  # type: ignore[method-assign]
        packages: dict[str, torch.export.ExportedProgram] = {}

        def package(program: torch.export.ExportedProgram, *_: Any, **__: Any) -> str:
            name = f"/nonexistent/{len(packages)}.pt2"
            packages[name] = program
            return name

        # A build takes 10 to 30 s and is not what is examined: ep.module() answers in place of the suite's packages.
        torch._inductor.aoti_compile_and_package = package
        torch._inductor.aoti_load_package = lambda name, *_, **__: packages[name].module()

    def export(self, model: torch.nn.Module, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        """Export as torch does, and keep the case if torch took it."""
        if not self._is_active or torch.compiler.is_compiling():
            return EXPORT(model, args, kwargs, **options)
        case = self.case(model, args, kwargs, **options)
        with self._unobserved(model):
            program = EXPORT(model, args, kwargs, **options)
        if case:
            _mark(program, case)
            self.cases.append(case)
        return program

    def case(
        self, model: torch.nn.Module, args: Any = (), kwargs: Any = None, dynamic_shapes: Any = None, **options: Any
    ) -> Case | None:
        """Return a case with copies of its own, or None for what cannot be run: fake tensors, too many."""
        if len(self.cases) >= _PROGRAMS or not isinstance(model, torch.nn.Module) or has_fake((args, kwargs)):
            return None
        try:
            with self._unobserved(model):
                return Case(copied(model), *copied((tuple(args), dict(kwargs or {}))), dynamic_shapes, options)
        except Exception:  # noqa: BLE001  # whatever a suite's classes raise when copied
            return None

    def observe(self, module: torch.nn.Module, case: Case) -> torch.nn.Module:
        """Keep the inputs that a module is called with."""

        def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self._is_active or len(case.calls) >= _CALLS or has_fake((args, kwargs)):
                return
            if not self.is_rewritten or _dtypes((args, kwargs)) == _dtypes((case.args, case.kwargs)):
                case.calls.append(copied((args, kwargs)))

        module._peers_hook = module.register_forward_pre_hook(keep, prepend=True, with_kwargs=True)
        module._peers_keep = keep
        return module

    @contextmanager
    def _unobserved(self, model: torch.nn.Module) -> Iterator[None]:
        """Take our hook off while a module is copied or exported again."""
        hook = getattr(model, "_peers_hook", None)
        if hook is None:
            yield
            return
        keep = model._peers_keep
        hook.remove()
        del model._peers_hook, model._peers_keep
        try:
            yield
        finally:
            model._peers_hook = model.register_forward_pre_hook(keep, prepend=True, with_kwargs=True)
            model._peers_keep = keep


def _dtypes(value: Any) -> list[Any]:
    return [leaf.dtype for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _mark(program: torch.export.ExportedProgram, case: Case | None) -> None:
    program._peers_case, program._peers_code = case, program.graph_module.code  # type: ignore[attr-defined]


class Lazily(torch.nn.Module):
    """Stand in for ``torch.compile``: the inputs of the first call are the examples, and the model answers."""

    def __init__(self, model: torch.nn.Module, recorder: Recorder) -> None:
        """Wait for the first call."""
        super().__init__()
        self.model, self._recorder, self._case = model, recorder, None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the call, and run the model itself."""
        if self._case is None:
            self._case = self._recorder.case(self.model, args, kwargs)
            if self._case:
                self._recorder.cases.append(self._case)
        else:
            self._case.calls.append(copied((args, kwargs)))
        return self.model(*args, **kwargs)


def copied(value: Any) -> Any:
    """Return a deep copy; tensors that autograd made are detached, since torch refuses to copy them."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value)
    leaves, spec = pytree.tree_flatten(value)
    seen: dict[int, Any] = {}
    return pytree.tree_unflatten([seen.setdefault(id(leaf), _copied_leaf(leaf)) for leaf in leaves], spec)


def _copied_leaf(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return copy.deepcopy(leaf)
    with torch.no_grad():
        return copy.deepcopy(leaf) if leaf.is_leaf else copy.deepcopy(leaf.detach())


def has_fake(value: Any) -> bool:
    """Say whether there are tensors without data among the arguments."""
    leaves = pytree.tree_leaves(value)
    return any(isinstance(leaf, (FakeTensor, torch.SymInt)) for leaf in leaves) or any(
        isinstance(leaf, torch.Tensor)
        and (leaf.device.type != "cpu" or torch._C._functorch.is_functorch_wrapped_tensor(leaf))
        for leaf in leaves
    )
