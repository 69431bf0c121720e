"""The base of all errors, and those of arguments and settings: fields first, the message in ``__str__``."""

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
    """A value has no stable encoding, so no key can be made of it."""

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
