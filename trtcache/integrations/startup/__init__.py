"""A folder for ``PYTHONPATH`` that installs the cache for torch_tensorrt at Python's startup. Not for import."""
