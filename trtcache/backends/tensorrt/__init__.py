"""Plans of TensorRT and TensorRT-RTX, whose Python APIs are nearly identical."""
