"""Process-wide flags of torch that engines depend on, for the worker of a background build and for kept programs."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trtcache.keys.torch_config import overrides, passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trtcache.digests import Json


def _options() -> dict[str, object]:
    return dict(overrides(sys.modules.get("torch._inductor.config")))


def _set_options(options: Mapping[str, object]) -> None:
    from torch._inductor import config

    for name, value in options.items():
        setattr(config, name, value)


def _set_deterministic(flags: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


_FLAGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic": (
        lambda: [torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()],
        _set_deterministic,
    ),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    **{
        kernel: (getattr(torch.backends.cuda, f"{kernel}_enabled"), getattr(torch.backends.cuda, f"enable_{kernel}"))
        for kernel in ("cudnn_sdp", "flash_sdp", "math_sdp", "mem_efficient_sdp")
    },
    "default dtype": (
        lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        lambda name: torch.set_default_dtype(getattr(torch, name)),
    ),
    "inductor": (_options, _set_options),
}


def read_flags() -> dict[str, Json]:
    """Return the flags of this process.

    Raises:
        ValueError: one has a value that cannot be sent; the message says which.
    """
    flags: dict[str, Any] = {}
    for name, (get, _) in _FLAGS.items():
        try:
            flags[name] = get()
        except RuntimeError as error:  # a precision that was set for one device (torch 2.13)
            raise ValueError(f"the {name} cannot be sent to another process: {error}") from error
    for name, _ in passes(sys.modules.get("torch._inductor.config")):
        raise ValueError(f"torch._inductor.config.{name} cannot be sent to another process")
    for name, value in flags["inductor"].items():
        try:
            is_same = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise ValueError(f"torch._inductor.config.{name} cannot be sent to another process")
    return flags


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags that ``read_flags`` returned in another process."""
    for name, (get, set_) in _FLAGS.items():
        if name in flags and get() != flags[name]:
            set_(flags[name])


@contextmanager
def use_flags(flags: Mapping[str, Any]) -> Iterator[None]:
    """Set flags as ``set_flags`` does, until the block ends.

    Raises:
        ValueError: this version of torch lacks one, or one of this process cannot be restored.
    """
    with ExitStack() as stack:
        stack.callback(set_flags, read_flags())
        try:
            if options := flags.get("inductor"):
                from torch._inductor import config

                stack.enter_context(config.patch(options))
            set_flags(flags)
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"a flag of torch cannot be set as for the program: {error}") from error
        yield
