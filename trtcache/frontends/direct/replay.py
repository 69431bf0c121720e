"""Replay: run a model on fake tensors, and compare each operation with the next one of stored traces.

The sizes, dtypes and devices of results are those in the trace, so nothing is computed, not even sizes. After the first
operation that differs from all traces torch computes the sizes, and the model is exported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import TorchDispatchMode

from trtcache.config.frozen import frozen_dataclass
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct.export_context import OWN_FOLDERS
from trtcache.frontends.direct.trace import (
    DEVICE_QUERY,
    Fakes,
    TraceWriter,
    call_untraced,
    empty_shape_env,
    is_untraced,
    operator_of,
    run,
)

if TYPE_CHECKING:
    from torch.utils import _pytree as pytree

    from trtcache.digests import Json
    from trtcache.frontends.direct.executed_code import ExecutedCode
    from trtcache.frontends.direct.manifest import Manifest

_SHOWN = 60  # characters of an argument


class _Replay(FakeTensorMode):  # type: ignore[no-untyped-call]  # torch's
    """Takes the results of operators from traces, and after the first difference from torch.

    The constructor of ``FakeTensorMode`` is only called at a difference: it imports Dynamo, which takes longer than a
    replay. The model's code then runs to its end, so that it restores what it has changed.
    """

    shape_env = cached_property(lambda _: empty_shape_env())  # SymPy is only imported for code that asks for it
    static_shapes = allow_non_fake_inputs = allow_fallback_kernels = True
    propagate_real_tensors = cache_enabled = cache_crosscheck_enabled = allow_scalar_outputs = allow_meta = False
    _allow_unsafe_data_ptr_access = False

    def __init__(self, follower: _Follower) -> None:
        TorchDispatchMode.__init__(self)  # type: ignore[no-untyped-call]  # torch's
        self.enter_stack = []
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE  # no other mode of fake tensors is active beside it
        self._follower, self._fakes = follower, Fakes(self)
        self._is_complete = self._is_computing = False
        self._thread = threading.get_ident()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports Dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE_QUERY:  # half of the calls
            return args[0].fake_device
        operator = operator_of(func)
        if is_untraced(func, args):
            return call_untraced(func, args, kwargs or {})
        if threading.get_ident() != self._thread and not self._follower.difference:
            self._follower.difference = "forward calls operators in another thread, which an export does not see"
        if self._is_computing:  # a fake kernel calls operators
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        if not operator.is_own:  # its fake kernel is other code, which may have changed
            self._complete()
            self._is_computing = True
            try:
                compute = functools.partial(super().__torch_dispatch__, func, types, args, kwargs or {})
                return self._follower.follow_computed(func, args, kwargs or {}, compute)
            finally:
                self._is_computing = False
        try:
            result = self._follower.follow(func, args, kwargs or {}, self._fakes)
        except _DifferenceError:
            self._complete()
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        if operator.is_reshaping:
            with in_kernel_invocation_manager(self):
                func(*args, **(kwargs or {}))
        return result

    def _complete(self) -> None:
        """Let torch initialize the mode, which is active, unless it has."""
        if self._is_complete:
            return
        from torch._functorch import config

        active = {name: value for name, value in vars(self).items() if name.startswith(("old_", "enter_stack"))}
        with config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
            super().__init__(allow_non_fake_inputs=True, static_shapes=True, shape_env=self.shape_env)
        vars(self).update(active)
        self._is_complete = True

    def clear(self) -> None:
        """Forget all tensors."""
        self._fakes.clear()


_Replay.__name__ = FakeTensorMode.__name__


class _DifferenceError(Exception):
    """An operation is in no trace."""


class _Follower(TraceWriter):
    """Compares calls with the lines of traces, and makes their results.

    Attributes:
        left: the places of the traces that are equal so far.
        difference: the first operation that differs from all traces; empty if there is none so far.
    """

    def __init__(self, stored: Sequence[Manifest]) -> None:
        super().__init__()
        self._traces = [one.trace for one in stored]
        self._versions = [list(map(set, one.versions)) for one in stored]
        self.left = list(range(len(stored)))
        self._place = 0
        self.difference = ""

    @property
    def is_hit(self) -> bool:
        """Whether all operations were those of a trace."""
        return not self.difference

    def follow(self, function: Any, args: Any, kwargs: Any, fakes: Fakes) -> Any:
        """Return the results of a call as the traces have them.

        Raises:
            _DifferenceError: no trace has this call here, or an earlier one.
        """
        result = self._take(self._take_lines(function, args, kwargs), 3)[3]
        try:
            return self._read(result, fakes)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):  # an entry can contain anything
            self.difference = f"operation {self._place} has an invalid result in the trace"
            raise _DifferenceError from None

    def follow_computed(self, function: Any, args: Any, kwargs: Any, compute: Callable[[], Any]) -> Any:
        """Return the results of a call as torch computes them, and compare them as well."""
        call = None
        with suppress(_DifferenceError):
            call = self._take_lines(function, args, kwargs)
        result = compute()
        if call is not None:
            try:
                self._take([*call, self.write_result(result)])
            except NotComparableError as error:
                self.difference = str(error)
            except _DifferenceError:
                pass  # it is noted
        return result

    def _take_lines(self, function: Any, args: Any, kwargs: Any) -> list[Json]:
        """Write a call, and take the lines before it.

        Raises:
            _DifferenceError: no trace has them here, or there was a difference before.
        """
        if self.difference:
            raise _DifferenceError
        try:
            call = self.write_call(function, args, kwargs)
        except NotComparableError as error:
            self.difference = str(error)
            raise _DifferenceError from None
        for line in self.lines:
            self._take(line)
        self.lines.clear()
        return call

    def note_function(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call of a function, unless there was a difference before."""
        if not self.difference:
            super().note_function(function, args, kwargs, result)

    def finish(self, spec: pytree.TreeSpec, leaves: Iterable[Any]) -> None:
        """Compare the last line, unless there was a difference before."""
        if self.difference:
            return
        super().finish(spec, leaves)
        with suppress(_DifferenceError):
            for line in self.lines:
                self._take(line)
            self.left = [one for one in self.left if len(self._traces[one]) == self._place]
            if not self.left:
                self.difference = "it ends before the traces do"
                return
        changes = [self.code.describe_change(self._versions[one]) for one in self.left]
        self.left = [one for one, change in zip(self.left, changes, strict=True) if not change]
        if not self.left:
            self.difference = changes[0]

    def _take(self, line: list[Json], parts: int | None = None) -> Any:
        place, left = self._place, list[int]()
        for one in self.left:  # a comprehension would be a call for each operator
            trace = self._traces[one]
            if place < len(trace) and trace[place][:parts] == line:
                left.append(one)
        if not left:
            lines = [self._traces[one][place] for one in self.left if place < len(self._traces[one])]
            stored = lines[0] if lines else ["results", None]
            where = "" if line[0] == "results" else _find_user_line()
            self.difference = format_difference(place, stored[:parts], line, where)
            raise _DifferenceError
        self.left, self._place = left, place + 1
        return self._traces[left[0]][place]

    def _read(self, result: Any, fakes: Fakes) -> Any:
        if not isinstance(result, list):
            return result
        kind, *rest = result
        if kind == "new":
            number, dtype, shape, stride, offset, device, base = rest
            memory = None
            if not isinstance(base, list) and base in self._tensors:
                memory = _alive(torch.UntypedStorage._new_with_weak_ptr(self._tensors[base][1]))
            made = fakes.make(getattr(torch, dtype[6:]), shape, stride, offset, torch.device(device), memory)
            self.name(made, number)
            return made
        if kind == "t":
            tensor: Any = _alive(self._tensors[rest[0]][0]())
            tensor._fix_weakref()
            return tensor
        if kind == "b":
            return bool(rest[0])
        if kind == "f":
            return float.fromhex(rest[0])
        if kind == "c":
            return complex(*map(float.fromhex, rest))
        if kind in {"l", "u"}:
            items = [self._read(item, fakes) for item in rest]
            return items if kind == "l" else tuple(items)
        raise KeyError(kind)


def _alive(value: Any) -> Any:
    """Return what a weak reference leads to.

    Raises:
        LookupError: it is freed.
    """
    if value is None:
        raise LookupError
    return value


@frozen_dataclass
class Replayed:
    """The outcome of a replay.

    Attributes:
        place: the place of the manifest with the model's operations; None if there is none.
        difference: the first difference; empty if there is none.
        out_spec: the structure of the results.
        code: the model's code.
    """

    place: int | None
    difference: str
    out_spec: pytree.TreeSpec
    code: ExecutedCode


def replay(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], stored: Sequence[Manifest]
) -> Replayed:
    """Run a model without values, and find the manifest that has its operations, and its code.

    Raises:
        NotComparableError: the model registers weights or modules when it is called.
        Exception: the model's code raised it.
    """
    follower = _Follower(stored)
    mode = _Replay(follower)
    try:
        out_spec = run(model, args, kwargs, follower, mode)
    finally:
        mode.clear()
    place = None if follower.difference else follower.left[0]
    return Replayed(place, follower.difference, out_spec, follower.code)


def format_difference(place: int, stored: list[Any], line: list[Any], where: str = "") -> str:
    """Format the difference of two lines of traces."""
    before, now = format_line(stored), format_line(line)
    if before == now:
        return f"operation {place + 1}{where}: {now}, with other values, sizes or structure"
    return f"operation {place + 1}{where}: {before} -> {now}"


def format_line(line: list[Any]) -> str:
    """Format a line of a trace for a reader."""
    if line[0] == "grad":
        return f"gradients {'enabled' if line[1] else 'disabled'}"
    if line[0] == "results":
        return f"return {', '.join(map(_format, line[2:]))}"
    if line[0] == "assigned":
        return f"assignment of {', '.join(line[1:])}"
    if line[0] == "sizes":
        return f"guards of sizes {_shorten(', '.join([*map(str, line[1][0]), *map(str, line[2])]))}"
    named = [f"{name}={_format(value)}" for name, value in line[2][1:]]
    return f"{line[0].removesuffix('.default')}({', '.join([*map(_format, line[1][1:]), *named])})"


def _format(value: Any) -> str:
    if not isinstance(value, list):
        return repr(value)
    kind, *rest = value
    if kind == "t":
        name = rest[0]
        return (
            f"%{name}"
            if isinstance(name, int)
            else "constant"
            if isinstance(name, list)
            else name.removeprefix("weight ")
        )
    if kind == "b":
        return str(bool(rest[0]))
    if kind == "f":
        return repr(float.fromhex(rest[0]))
    if kind == "l":
        return _shorten(f"[{', '.join(map(_format, rest))}]")
    return " ".join(map(str, rest))


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _find_user_line() -> str:
    """Return where the model's code is, or ''."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(OWN_FOLDERS) and not path.startswith("<"):
            return f" (line {frame.f_lineno} of {Path(path).name})"
        frame = frame.f_back
    return ""
