"""ONNX files as sources: validation, canonical graph, interface, and weights by reference."""
