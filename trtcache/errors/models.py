"""Errors of a model on its way to an engine, and of the weights that are put into one."""

from __future__ import annotations

from dataclasses import dataclass

from trtcache.errors.base import TrtcacheError


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
