"""From an exported program to the lowered graph: the pass protocol, the pipeline, one file per pass."""
