"""Direct mode: recognise a module whose exported program is known, without exporting it."""
