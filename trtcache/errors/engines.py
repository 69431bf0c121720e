"""Errors of engines and of what builds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trtcache.errors.base import TrtcacheError


class BackendError(TrtcacheError):
    """An engine builder or an engine failed."""

    exit_code: ClassVar[int] = 6


@dataclass(eq=False)
class PartitionError(BackendError):
    """A program was to be one engine, and is not: ``left`` has what stays in torch, in words."""

    name: str
    why: str
    left: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} is not one engine, and {self.why}; this stays in torch: {'; '.join(self.left)}"


@dataclass(eq=False)
class BackendUnavailableError(BackendError):
    """The backend asked for is unknown, or what it needs is not installed."""

    backend: str
    why: str

    def __str__(self) -> str:
        return f"backend {self.backend!r}: {self.why}"


@dataclass(eq=False)
class BuildError(BackendError):
    """An engine could not be built."""

    kind: str
    why: str

    def __str__(self) -> str:
        return f"building {self.kind} failed: {self.why}"


@dataclass(eq=False)
class UnsupportedOperatorError(BuildError):
    """The builder does not know an operator of the program, or not with these types and shapes.

    ``where`` is the line of the model that the operator comes from, empty where nobody knows it.
    """

    node: str = ""
    operator: str = ""
    where: str = ""

    def __str__(self) -> str:
        where = f", from {self.where}" if self.where else ""
        remedy = "write that part of the model with other operators, or use the aot_inductor backend"
        return f"building {self.kind} failed at {self.operator or 'a node'} ({self.node}{where}): {self.why}; {remedy}"


class FrozenWeightsError(BuildError):
    """An artifact that was to take other weights could not take all of them."""

    def __str__(self) -> str:
        remedy = "build for these weights alone with settings={'tensorrt': {'refit': False}}"
        return f"building {self.kind} failed: it could not take other weights ({self.why}); {remedy}"


@dataclass(eq=False)
class ProfileError(BuildError):
    """A size that varies has no range that a plan can be built for."""

    hint: str = ""

    def __str__(self) -> str:
        remedy = self.hint or "give each size that varies a least and a most value, as in Dim('batch', min=1, max=8)"
        return f"building {self.kind}: {self.why}; {remedy}"


class BuildMemoryError(BuildError):
    """The builder ran out of memory."""

    def __str__(self) -> str:
        remedy = "give it a machine or a GPU with more, or less by settings={'tensorrt': {'workspace': '1GB'}}"
        return f"building {self.kind} ran out of memory: {self.why}; {remedy}"


class BuildCancelledError(BuildError):
    """Who watched a build called it off; nothing was stored."""

    def __str__(self) -> str:
        return f"the build of {self.kind} was called off {self.why}; nothing was stored"


@dataclass(eq=False)
class BuildForbiddenError(BackendError):
    """The cache has no entry and ``TRTCACHE_FORBID_BUILD=1`` forbids to build one.

    ``key`` is empty if there can be none. ``why`` says how the nearest entry differs, or why there can be none, and
    ``lack`` what a build was wanted for.
    """

    kind: str
    key: str
    root: str
    why: str = ""
    lack: str = "no entry for"
    exit_code: ClassVar[int] = 7

    def __str__(self) -> str:
        what = f"{self.kind} key {self.key[:16]}" if self.key else f"a {self.kind} program"
        why = f" ({self.why})" if self.why else ""
        return f"TRTCACHE_FORBID_BUILD=1 and {self.lack} {what} in {self.root}{why}"


@dataclass(eq=False)
class IncompatibleEngineError(BackendError):
    """An artifact is sound but cannot run in this process or on this machine."""

    key: str
    why: str

    def __str__(self) -> str:
        return f"engine {self.key[:16]}: {self.why}"


@dataclass(eq=False)
class NoDeviceError(BackendError):
    """What was asked for needs a GPU that this machine has not."""

    backend: str
    target: str
    why: str

    def __str__(self) -> str:
        return f"{self.backend} for {self.target}: {self.why}"


@dataclass(eq=False)
class RunError(BackendError):
    """An engine refuses a call whose arguments are right, or fails in it."""

    backend: str
    why: str

    def __str__(self) -> str:
        return f"running {self.backend}: {self.why}"
