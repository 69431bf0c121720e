"""What can be compiled: exported programs, files, TorchScript and ONNX."""
