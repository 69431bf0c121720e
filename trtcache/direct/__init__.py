"""Direct mode: from a module and its example inputs to its engine without exporting it."""
