"""From a request to a compiled module: look up, build, load."""
