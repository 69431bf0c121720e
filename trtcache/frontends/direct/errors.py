"""The error of an object that cannot be described."""

from __future__ import annotations


class UnstableError(Exception):
    """An object, or what code reads, cannot be described, and so not compared.

    Attributes:
        path: the steps to it, the last first.
        what: the object, in words.
        is_of_function: whether it is a function, whose code is known once it runs.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []
        self.what = what
        self.is_of_function = False

    def below(self, step: object) -> UnstableError:
        """Add a step towards the root, and return the error."""
        self.path.append(str(step))
        return self

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path)) or 'it'} cannot be compared ({self.what})"
