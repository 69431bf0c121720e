"""Direct mode: a module's program without an export, by the operations that the module performs."""

UNKNOWN_TORCH = "2.15.dev0"
"""The first version of torch whose exporter a replay was not compared with."""


class NotComparableError(Exception):
    """The operations of a model, or what they depend on, cannot be recorded or compared."""
