"""Why a model's operations cannot be recorded or compared."""

from __future__ import annotations


class NotComparableError(Exception):
    """The operations of a model, or what they depend on, cannot be recorded or compared."""
