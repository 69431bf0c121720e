"""Engine caches of other tools, read without their code and without unpickling."""
