"""torch's AOTInductor as a backend: packages without weights, on CPU and CUDA."""
