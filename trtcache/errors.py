"""All exceptions of trtcache. Each class lists its fields, then its message, with fields in braces.

A cache miss is not an error (it is ``None``), and corruption is a miss with a reason; store errors are raised only if
the operation cannot continue.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


def _restore(cls: type[TrtcacheError], state: dict[str, Any]) -> TrtcacheError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    return error


@dataclass_transform(eq_default=False)
class TrtcacheError(Exception):
    """Base class of all errors of this package. ``exit_code`` is the exit code of the command line.

    Annotations are fields, as in a dataclass. ``dataclass`` would generate code for each class, which takes a quarter
    of the time that a hit takes to import.
    """

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [name for name, kind in vars(cls).get("__annotations__", {}).items() if not kind.startswith("ClassVar")]
        cls.fields = (*cls.fields, *(name for name in own if name not in cls.fields))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.fields:
            super().__init__(*args, **kwargs)
            return
        given = dict(zip(self.fields, args, strict=False))
        wrong = [name for name in kwargs if name in given or name not in self.fields]
        for name in self.fields:
            if name in kwargs or name in given:
                setattr(self, name, kwargs[name] if name in kwargs else given[name])
            elif hasattr(type(self), name):
                setattr(self, name, getattr(type(self), name))
            else:
                wrong.append(name)
        if wrong or len(args) > len(self.fields):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fields)}; wrong: {wrong or args}")

    def __repr__(self) -> str:
        if not self.fields:
            return super().__repr__()
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"

    def __str__(self) -> str:
        return self.message.format_map(vars(self)) if self.message else super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), dict(self.__dict__))


class CanonicalizationError(TrtcacheError):
    """A value has no stable encoding, so it cannot be part of a key."""

    where: str
    why: str
    message = "{where}: {why}"


class SettingsError(TrtcacheError):
    """A setting, target or environment variable is unknown or has an invalid value."""

    name: str
    why: str
    exit_code: ClassVar[int] = 2
    message = "{name}: {why}"


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
    """A call violates a guard: for its sizes or layouts the model would do something else than the exported program."""

    def __str__(self) -> str:
        if self.where != "sizes":
            return super().__str__()
        return f"compiled for {self.expected}; {self.found}; {self.hint}"


def did_you_mean(name: str, known: list[str]) -> str:
    """Return an error message for an unknown name that suggests the nearest of the ``known`` ones."""
    import difflib  # 2 ms, needed for misspelt names only

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown; {hint}known: {', '.join(sorted(known)) or 'none'}"


class BackendError(TrtcacheError):
    """A build failed, or an engine failed."""

    exit_code: ClassVar[int] = 6


class PartitionError(BackendError):
    """A program had to be a single engine and is not: ``left`` lists what stays in torch."""

    name: str
    why: str
    left: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} is not one engine: {'; '.join(self.left)} would stay in torch; {self.why}"


class BackendUnavailableError(BackendError):
    """The requested backend is unknown, or its requirements are not installed."""

    backend: str
    why: str
    message = "backend {backend!r}: {why}"


class BuildError(BackendError):
    """An engine could not be built."""

    kind: str
    why: str
    message = "building {kind} failed: {why}"


class UnsupportedOperatorError(BuildError):
    """The builder does not support an operator of the program, or not with these types and shapes.

    ``where`` is the source line in the model, empty if unknown.
    """

    node: str = ""
    operator: str = ""
    where: str = ""

    def __str__(self) -> str:
        where = f", from {self.where}" if self.where else ""
        remedy = "write that part of the model with other operators, or use the aot_inductor backend"
        if "." in self.operator:  # one of torch, not of ONNX
            remedy = f"leave it in torch with settings={{'torch_executed_ops': ['{self.operator}']}}, or {remedy}"
        return f"building {self.kind} failed at {self.operator or 'a node'} ({self.node}{where}): {self.why}; {remedy}"


class FrozenWeightsError(BuildError):
    """An artifact that was requested to be refittable has weights that cannot be refitted."""

    message = (
        "building {kind} failed: it is not refittable ({why}); build it for these weights only with "
        "settings={{'tensorrt': {{'refit': False}}}}"
    )


class ProfileError(BuildError):
    """A dynamic size has no range for an optimization profile."""

    hint: str = ""

    def __str__(self) -> str:
        remedy = self.hint or "set a minimum and a maximum for each dynamic size, as in Dim('batch', min=1, max=8)"
        return f"building {self.kind}: {self.why}; {remedy}"


class BuildMemoryError(BuildError):
    """The builder ran out of memory."""

    message = (
        "building {kind} ran out of memory: {why}; use a machine or a GPU with more memory, or a lower limit: "
        "settings={{'tensorrt': {{'workspace': '1GB'}}}}"
    )


class BuildCancelledError(BuildError):
    """A watcher cancelled a build; nothing was stored."""

    message = "the build of {kind} was cancelled {why}; nothing was stored"


class BuildForbiddenError(BackendError):
    """The cache has no entry and ``TRTCACHE_FORBID_BUILD=1`` forbids building one.

    ``key`` is empty if the program is not cacheable. ``why`` describes what is wrong with the stored entry, or else the
    difference to the nearest other one, or why the program is not cacheable. ``lack`` are the words of the message
    before the key. ``remotes`` has the URL of each remote with the reason of its miss.
    """

    kind: str
    key: str
    root: str
    why: str = ""
    lack: str = "no entry for"
    remotes: tuple[str, ...] = ()
    exit_code: ClassVar[int] = 7

    def __str__(self) -> str:
        what = f"{self.kind} key {self.key[:16]}" if self.key else f"a {self.kind} program"
        why = "; ".join(filter(None, (*self.remotes, self.why)))
        found = f"TRTCACHE_FORBID_BUILD=1 and {self.lack} {what} in {self.root}{f' ({why})' if why else ''}"
        if not self.key or self.lack != "no entry for":
            return found
        return f"{found}; build it first, in a process without TRTCACHE_FORBID_BUILD (a model: 'trtcache build')"


class TorchForbiddenError(BackendError):
    """Something needs torch, and ``TRTCACHE_NO_TORCH=1`` forbids importing it."""

    name: str
    why: str
    exit_code: ClassVar[int] = 7
    message = "TRTCACHE_NO_TORCH=1 and {name} needs torch: {why}"


class IncompatibleEngineError(BackendError):
    """An artifact is intact but cannot run in this process or on this machine."""

    key: str
    why: str
    message = "engine {key:.16}: {why}"


class NoDeviceError(BackendError):
    """A GPU is required, and this machine has none, or one that does not fit.

    ``target`` is empty if only ``backend`` matters.
    """

    backend: str
    target: str
    why: str

    def __str__(self) -> str:
        return f"{self.backend}{f' for {self.target}' if self.target else ''}: {self.why}"


class RunError(BackendError, RuntimeError):
    """An engine rejected or failed a valid call: an operator's own check failed, for example.

    It is a ``RuntimeError``, which eager torch raises for most of these. ``torch.OutOfMemoryError`` and the errors of
    operators that stay in torch remain what they are.
    """

    backend: str
    why: str
    message = "running {backend}: {why}"


class PassError(TrtcacheError):
    """A lowering pass broke its contract. ``graph`` is the graph after the pass, as text."""

    pass_name: str
    before: tuple[str, ...]
    why: str
    graph: str = ""

    def __str__(self) -> str:
        ran = ", ".join(self.before) or "none"
        more = "; TRTCACHE_LOG=lowering shows what each pass changes"
        return f"pass {self.pass_name}: {self.why} (passes that ran before: {ran}){more}"


class PreconditionError(PassError):
    """A pass received a graph that it does not accept."""


class PostconditionError(PassError):
    """A pass returned a graph that violates its postcondition."""


class ExportError(TrtcacheError):
    """A model cannot be exported to a program."""

    model: str
    why: str
    message = "{model} cannot be exported: {why}"


class ModelFileError(ExportError):
    """A file does not exist, is damaged, or is not one of a model."""

    message = "{model}: {why}"


class OnnxFileError(ModelFileError):
    """A file is not an ONNX model, is damaged, or has external data that is not allowed."""


class TrainingError(TrtcacheError):
    """A graph is called for training: its outputs require gradients, which an engine does not compute."""

    graph: str
    why: str
    message = (
        "{graph} is called for training: {why}; for inference call it under torch.inference_mode() or "
        "torch.no_grad(), or set options={{'training': 'eager'}} to train it"
    )


class RefitError(TrtcacheError):
    """New weights do not fit the engine; the old ones are unchanged."""

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


class NotReadyError(TrtcacheError, AttributeError):
    """A compiled module was used for something that needs its engine, which is still being built, or failed to."""

    program: str
    what: str
    why: str
    remedy: str = "call wait() first"
    message = "{program} has no {what}: {why}; {remedy}"


class VerifyError(RefitError):
    """An engine with new weights does not match eager torch, or cannot be compared; the old weights are unchanged.

    ``where`` is the output, empty if none was compared.
    """

    where: str = ""
    why: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"the new weights are not verified, nothing was changed: {where}{self.why}"


class FixedWeightsError(RefitError):
    """A backend's engines take no other weights; the old ones are unchanged."""

    backend: str = ""
    setting: str = ""

    def __str__(self) -> str:
        which = f" built with {self.setting}" if self.setting else ""
        return (
            f"engines of backend {self.backend!r}{which} take no other weights; compile a model that has the new "
            "weights, which finds its own engine or builds one"
        )


class RefitStoppedError(RefitError):
    """A refit failed while writing weights: the engine has a mix of old and new weights and refuses calls."""

    why: str = ""

    def __str__(self) -> str:
        return f"a refit failed part way ({self.why}); calls fail until the module is refitted again"


class WeightsFileError(TrtcacheError):
    """A weights file cannot be read."""

    path: str
    why: str
    message = "{path}: cannot read weights: {why}"


def _some(names: tuple[str, ...], most: int = 6) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class ProgramFileError(TrtcacheError):
    """A program file cannot be written or loaded; nothing was loaded."""

    path: str
    why: str
    message = "{path}: {why}"


class NotAProgramError(ProgramFileError):
    """A file is not a program file."""


class DamagedProgramError(ProgramFileError):
    """A program file is damaged."""

    exit_code: ClassVar[int] = 4
    message = "{path}: damaged: {why}; export it again, or copy it again from its source"


class TruncatedProgramError(DamagedProgramError):
    """A program file ends too early."""


class TamperedProgramError(DamagedProgramError):
    """Content of a program file does not match its digests."""


class ProgramSizesError(DamagedProgramError):
    """A program file declares sizes that do not match its content, or are out of bounds."""


class ProgramNamesError(DamagedProgramError):
    """A name in a program file is invalid, such as one that could be a path."""


class ProgramContentError(DamagedProgramError):
    """The content of a program file is inconsistent."""


class WeightMapError(DamagedProgramError):
    """The weights of a program file do not match its engines."""


class ProgramVersionError(ProgramFileError):
    """A program file has a format that this version does not read."""

    found: int = 0
    known: int = 0
    message = "{path}: format {found}, but this trtcache reads format {known}; upgrade trtcache"


class UntrustedProgramError(ProgramFileError):
    """A program file has no trusted signature, and loading it can run code from it.

    ``reason`` is ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key`` or ``bad-signature``.
    """

    reason: str = "unsigned"
    exit_code: ClassVar[int] = 3
    message = (
        "{path}: {why} ({reason}), and an engine runs code; trust its signer's key (trtcache trust add, or "
        "TRTCACHE_TRUSTED_KEYS), or load it with trust='local-file' (trtcache infer --trust local-file) if you trust "
        "the origin of this file"
    )


class NoFittingEngineError(ProgramFileError):
    """No engine of a program file can run in this process; ``refused`` lists each target with the reason."""

    refused: tuple[str, ...] = ()
    remedy: str = ""
    exit_code: ClassVar[int] = 6

    def __str__(self) -> str:
        return f"{self.path}: {self.why} ({'; '.join(self.refused)}); {self.remedy}"


class MissingEngineError(ProgramFileError):
    """An engine that a program file refers to, by key or as a sidecar file, does not exist."""

    exit_code: ClassVar[int] = 5


class StoreError(TrtcacheError):
    """A store operation failed."""

    exit_code: ClassVar[int] = 3


class NotAStoreError(StoreError):
    """A directory is not a trtcache store."""

    root: str
    why: str
    message = "{root} is not a trtcache store: {why}"


class UnsafeStoreError(StoreError):
    """Another user could put engines, which are code, into this store."""

    root: str
    why: str
    message = "{root} is not safe to load engines from: {why}"


class CorruptBlobError(StoreError):
    """An artifact file is damaged.

    ``reason`` is one word for the counters: ``magic``, ``header``, ``size``, ``padding``, ``member``, ``key``, ``file``
    (not a plain file of this user), or ``index`` (the file is the index itself).
    """

    path: str
    reason: str
    why: str
    exit_code: ClassVar[int] = 4
    message = "{path}: damaged ({reason}): {why}"


class UntrustedEntryError(StoreError):
    """An entry is intact, but not signed by a trusted key.

    ``reason`` is one word for the counters: ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key``,
    ``bad-signature``.
    """

    path: str
    reason: str
    signer: str = ""

    def __str__(self) -> str:
        signer = f" by {self.signer}" if self.signer else ""
        why = f"signatures are required, and its signature{signer} is not trusted"
        return f"{self.path} is not used: {why} ({self.reason})"


class UntrustedWriterError(StoreError):
    """An entry was not stored, because no process with the same trust settings would use it."""

    root: str
    why: str
    message = (
        "{root} requires signatures, and nothing is stored there: {why}; see 'trtcache trust', or set "
        "TRTCACHE_SIGNATURES=off to use entries of all users who can write there"
    )


class FormatVersionError(StoreError):
    """A file or a store has a format that this version does not read."""

    path: str
    found: int
    known: int
    message = (
        "{path}: format {found}, but this trtcache reads format {known}; upgrade trtcache or name another cache "
        "directory"
    )


class HeaderSizeError(StoreError):
    """An entry cannot be stored: its key document and provenance exceed the size limit of a header."""

    size_bytes: int
    limit_bytes: int
    message = (
        "the header has {size_bytes} bytes, and the format allows {limit_bytes}; use digests for large parts of the key"
    )


class LockTimeoutError(StoreError):
    """Another process held a lock for as long as this one waited, ``waited_s``."""

    path: str
    waited_s: float
    message = (
        "{path}: another process still holds this lock after {waited_s:.0f} s; try again, or find it: fuser {path}"
    )


class BusyError(StoreError):
    """Another process builds the entry, and the caller does not wait. ``builder`` is ``host:pid`` if known."""

    kind: str
    key: str
    builder: str
    waited_s: float

    def __str__(self) -> str:
        who = self.builder or "another process"
        return (
            f"{who} is building {self.kind} {self.key[:16]}, and on_busy='eager' stopped waiting after "
            f"{self.waited_s:.0f} s; use on_busy='wait', or see 'trtcache ls --building'"
        )


class ReadOnlyError(StoreError):
    """A change was requested in a store that cannot be written."""

    root: str
    action: str
    why: str = "is read-only (because of TRTCACHE_READONLY=1 or its permissions)"
    message = "cannot {action}: {root} {why}"


class PinnedEntryError(StoreError):
    """A pinned entry was to be removed."""

    key: str
    message = "entry {key:.16} is pinned and was not removed: run 'trtcache unpin {key:.16}', or delete with force=True"


class UnusableEntryError(StoreError):
    """A stored entry is damaged, not trusted, or of another format."""

    key: str
    why: str
    exit_code: ClassVar[int] = 4
    message = "entry {key:.16} cannot be used: {why}"


class IndexUnavailableError(StoreError):
    """The index of a store cannot be read or written now; its entries are not affected."""

    path: str
    why: str
    message = "{path}: the index cannot be used: {why}"


class RemoteError(StoreError):
    """A remote did not do what it was asked to do. Look-ups never raise it: they miss.

    ``reason`` is one word for the counters: ``unreachable``, ``timeout``, ``slow``, ``busy`` (429 and 5xx), ``cut``,
    ``corrupt``, ``denied``, ``no-credentials``, ``no-trusted-key``, ``unsigned``, ``no-bucket``, ``no-length``,
    ``no-list``, ``unsupported`` (405 and 501), ``refused`` (400 and 413, one object), ``name``, ``archived``,
    ``not-installed``, ``error``.
    """

    url: str
    reason: str
    why: str
    message = "{url}: {why} ({reason})"


class UnknownKeyError(StoreError):
    """No entry has this key."""

    prefix: str
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        lists = "'trtcache ls --all' lists them"
        if not self.prefix.lower().removeprefix("b3:"):
            return f"the key is empty; {lists}"
        if set(self.prefix.lower().removeprefix("b3:")) <= set("0123456789abcdef"):
            return f"no entry has a key that starts with {self.prefix!r}; {lists}"
        return f"{self.prefix!r} is not a key, which has digits 0-9 and a-f; {lists}"


class AmbiguousKeyError(StoreError):
    """Several entries have keys with this prefix."""

    prefix: str
    matches: tuple[str, ...]
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        shown = ", ".join(match[: len(self.prefix) + 8] for match in self.matches[:4])
        more = ", ..." if len(self.matches) > 4 else ""
        count = len(self.matches)
        return f"{count} entries have keys that start with {self.prefix!r} ({shown}{more}); use a longer prefix"
