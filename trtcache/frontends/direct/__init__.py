"""Direct mode: a module's program without an export, by the operations that the module performs."""
