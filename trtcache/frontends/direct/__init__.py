"""Direct mode: recognize a module whose exported program is known, without exporting it."""
