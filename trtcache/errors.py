"""Every error that trtcache raises: fields first, the message in ``__str__``, an exit code on the class.

A cache miss is not an error (it is ``None``), and corruption is a miss with a reason; the store's errors reach a caller
only where there is no way on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


def _restore(cls: type[TrtcacheError], state: dict[str, Any]) -> TrtcacheError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    return error


class TrtcacheError(Exception):
    """Base of all errors of this package. ``exit_code`` is what the command line exits with."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), dict(self.__dict__))


@dataclass(eq=False)
class CanonicalizationError(TrtcacheError):
    """A value has no stable encoding, so it cannot be part of a key."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(eq=False)
class SettingsError(TrtcacheError):
    """A setting, target or environment variable is unknown or has an impossible value."""

    name: str
    why: str
    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(eq=False)
class InputError(TrtcacheError):
    """A compiled module was called with arguments that it was not compiled for."""

    where: str
    expected: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.where}: expected {self.expected}, got {self.found}{hint}"


class GuardError(InputError):
    """A call has sizes that the program was not exported for: another branch of the model would have to be taken."""

    def __str__(self) -> str:
        if self.where != "sizes":
            return super().__str__()
        return f"compiled for {self.expected}; {self.found}; {self.hint}"


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the sentence that tells a misspelt ``name`` from the ``known`` ones."""
    import difflib  # 2 ms, and nearly nobody misspells

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown; {hint}known: {', '.join(sorted(known))}"


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
    """The requested backend is unknown, or what it needs is not installed."""

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
    """The request needs a GPU, and this machine has none."""

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


@dataclass(eq=False)
class PassError(TrtcacheError):
    """A lowering pass broke its contract. ``graph`` is the graph as the pass left it, as text."""

    pass_name: str
    before: tuple[str, ...]
    why: str
    graph: str = ""

    def __str__(self) -> str:
        ran = ", ".join(self.before) or "none"
        more = "; TRTCACHE_LOG=lowering shows what each pass changes"
        return f"pass {self.pass_name}: {self.why} (passes that ran before: {ran}){more}"


class PreconditionError(PassError):
    """A pass was given a graph that it does not accept."""


class PostconditionError(PassError):
    """A pass left a graph that it promised not to leave."""


@dataclass(eq=False)
class ExportError(TrtcacheError):
    """A model cannot be turned into a program."""

    model: str
    why: str

    def __str__(self) -> str:
        return f"{self.model} cannot be exported: {self.why}"


class OnnxFileError(ExportError):
    """A file is no ONNX model, is damaged, or keeps its tensors where they are not taken from."""

    def __str__(self) -> str:
        return f"{self.model}: {self.why}"


@dataclass(eq=False)
class TrainingError(TrtcacheError):
    """A graph is for training: its results are to have gradients, which an engine does not give."""

    graph: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.graph} is called for training: {self.why}; for inference call it under torch.inference_mode() or "
            f"torch.no_grad(), or set options={{'training': 'eager'}} where it is to be trained"
        )


@dataclass(eq=False)
class RefitError(TrtcacheError):
    """New weights do not fit the engine; the old ones are still in place."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{label}: {_some(names)}"
            for label, names in (
                ("missing", self.missing),
                ("unexpected", self.unexpected),
                ("mismatched", self.mismatched),
            )
            if names
        ]
        return f"weights do not fit, nothing was changed ({'; '.join(parts)})"


@dataclass(eq=False)
class VerifyError(RefitError):
    """An engine with new weights does not answer as eager torch does, or that cannot be found out; the old ones stay.

    ``where`` is the output, empty where none was compared.
    """

    where: str = ""
    why: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"the new weights are not verified, nothing was changed: {where}{self.why}"


@dataclass(eq=False)
class RefitStoppedError(RefitError):
    """A refit failed while it wrote weights: the engine has some of the old and some of the new and does not answer."""

    why: str = ""

    def __str__(self) -> str:
        return f"a refit failed half way ({self.why}); calls have no answer until the module is refitted again"


@dataclass(eq=False)
class WeightsFileError(TrtcacheError):
    """No weights can be read from a file."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: no weights can be read from it: {self.why}"


def _some(names: tuple[str, ...], most: int = 6) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass(eq=False)
class ProgramFileError(TrtcacheError):
    """A program with its engines cannot be written to a file, or loaded from it; nothing was loaded."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class NotAProgramError(ProgramFileError):
    """A file is no program that carries its engines."""


class DamagedProgramError(ProgramFileError):
    """A program's file is not as it was written."""

    exit_code: ClassVar[int] = 4

    def __str__(self) -> str:
        return f"{self.path}: damaged: {self.why}; export it again, or copy it again from where it came from"


class TruncatedProgramError(DamagedProgramError):
    """A program's file ends too early."""


class TamperedProgramError(DamagedProgramError):
    """Bytes of a program's file are not those of their digests."""


class ProgramSizesError(DamagedProgramError):
    """A program's file says sizes that its content has not, or that are out of bounds."""


class ProgramNamesError(DamagedProgramError):
    """A name in a program's file is none that is written there, such as one that would be a path."""


class ProgramContentError(DamagedProgramError):
    """What a program's file says does not fit together."""


class WeightMapError(DamagedProgramError):
    """The weights in a program's file are not those that its engines take."""


@dataclass(eq=False)
class ProgramVersionError(ProgramFileError):
    """A program's file was written in a format that this version does not read."""

    found: int = 0
    known: int = 0

    def __str__(self) -> str:
        return f"{self.path}: format {self.found}, but this trtcache reads format {self.known}; upgrade trtcache"


@dataclass(eq=False)
class UntrustedProgramError(ProgramFileError):
    """Nobody whose signature counts here has signed a program, and loading one can run what is in it.

    ``reason`` is one short word: ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key``, ``bad-signature``.
    """

    reason: str = "unsigned"
    exit_code: ClassVar[int] = 3

    def __str__(self) -> str:
        ways = (
            "trust its signer's key (trtcache trust add, or TRTCACHE_TRUSTED_KEYS), or if you made this file or know "
            "who did: trtcache.load(..., trust='local-file')"
        )
        return f"{self.path}: {self.why} ({self.reason}), and an engine runs code; {ways}"


@dataclass(eq=False)
class NoFittingEngineError(ProgramFileError):
    """No engine in a program's file can run in this process; ``refused`` has each target with the reason."""

    refused: tuple[str, ...] = ()
    remedy: str = ""
    exit_code: ClassVar[int] = 6

    def __str__(self) -> str:
        return f"{self.path}: {self.why} ({'; '.join(self.refused)}); {self.remedy}"


class MissingEngineError(ProgramFileError):
    """A program refers to an engine, or has it in a file beside it, and it is not there."""

    exit_code: ClassVar[int] = 5


class StoreError(TrtcacheError):
    """The store cannot do what was asked."""

    exit_code: ClassVar[int] = 3


@dataclass(eq=False)
class NotAStoreError(StoreError):
    """A directory holds something that is not a trtcache store."""

    root: str
    why: str

    def __str__(self) -> str:
        return f"{self.root} is not a trtcache store: {self.why}"


@dataclass(eq=False)
class UnsafeStoreError(StoreError):
    """Another user could put engines, and so code, into this store."""

    root: str
    why: str

    def __str__(self) -> str:
        return f"{self.root} is not safe to load engines from: {self.why}"


@dataclass(eq=False)
class CorruptBlobError(StoreError):
    """An artifact file is not what its header says.

    ``reason`` is one short word that is counted: ``magic``, ``header``, ``size``, ``padding``, ``member``, ``key``.
    """

    path: str
    reason: str
    why: str
    exit_code: ClassVar[int] = 4

    def __str__(self) -> str:
        return f"{self.path}: damaged ({self.reason}): {self.why}"


@dataclass(eq=False)
class UntrustedEntryError(StoreError):
    """An entry is sound, and not signed by a key that counts here.

    ``reason`` is one short word that is counted: ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key``,
    ``bad-signature``.
    """

    path: str
    reason: str
    signer: str = ""

    def __str__(self) -> str:
        whose = f" by {self.signer}" if self.signer else ""
        return f"{self.path} is not used: signatures are required, and its own{whose} does not count ({self.reason})"


@dataclass(eq=False)
class UntrustedWriterError(StoreError):
    """An entry was not stored, because nobody who asks for the same signatures would use it."""

    root: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.root} asks for signatures, and nothing is stored there: {self.why}; "
            f"see 'trtcache trust', or set TRTCACHE_SIGNATURES=off to use entries of whoever can write there"
        )


@dataclass(eq=False)
class FormatVersionError(StoreError):
    """A file or a store was written in a format that this version does not read."""

    path: str
    found: int
    known: int

    def __str__(self) -> str:
        remedy = "upgrade trtcache or name another cache directory"
        return f"{self.path}: format {self.found}, but this trtcache reads format {self.known}; {remedy}"


@dataclass(eq=False)
class HeaderSizeError(StoreError):
    """An entry cannot be stored: its key document and provenance are larger than an artifact's header may be."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"a header of {self.size_bytes} bytes, and the format allows {self.limit_bytes}; "
            f"give large parts of the key as digests"
        )


@dataclass(eq=False)
class LockTimeoutError(StoreError):
    """Another process held a lock for longer than the caller would wait."""

    path: str
    waited_s: float

    def __str__(self) -> str:
        return f"{self.path}: another process has held this lock for {self.waited_s:.0f} s"


@dataclass(eq=False)
class BusyError(StoreError):
    """Another process builds what was wanted, and the caller would not wait. ``builder`` is ``host:pid`` if known."""

    kind: str
    key: str
    builder: str
    waited_s: float

    def __str__(self) -> str:
        who = self.builder or "another process"
        return (
            f"{who} builds {self.kind} {self.key[:16]} now, and after {self.waited_s:.0f} s on_busy='eager' waits no "
            f"longer; use on_busy='wait', or see 'trtcache ls --building'"
        )


@dataclass(eq=False)
class ReadOnlyError(StoreError):
    """A change was asked of a store that cannot be written."""

    root: str
    action: str

    def __str__(self) -> str:
        return f"cannot {self.action}: {self.root} is read-only (by TRTCACHE_READONLY=1 or by its permissions)"


@dataclass(eq=False)
class IndexUnavailableError(StoreError):
    """The index of a store cannot be read or written now; its entries are untouched."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: the index cannot be used: {self.why}"


@dataclass(eq=False)
class UnknownKeyError(StoreError):
    """No entry has this key."""

    prefix: str
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        return f"no entry has a key that begins with {self.prefix!r}; 'trtcache ls --all' lists them"


@dataclass(eq=False)
class AmbiguousKeyError(StoreError):
    """Several entries have keys with this prefix."""

    prefix: str
    matches: tuple[str, ...]
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        shown = ", ".join(match[: len(self.prefix) + 8] for match in self.matches[:4])
        more = ", ..." if len(self.matches) > 4 else ""
        return f"{len(self.matches)} entries have keys that begin with {self.prefix!r} ({shown}{more}); give more of it"
