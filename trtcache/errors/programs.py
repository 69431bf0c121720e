"""Errors of files that carry a program with its engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trtcache.errors.base import TrtcacheError


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
