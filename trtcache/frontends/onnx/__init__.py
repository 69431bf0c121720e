"""ONNX files as input: what is in one, its canonical graph, its border, and its weights by reference."""
