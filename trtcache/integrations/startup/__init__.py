"""A folder for ``PYTHONPATH``: a Python that starts with it has the cache before torch_tensorrt. Not for import."""
