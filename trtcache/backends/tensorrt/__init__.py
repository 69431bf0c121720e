"""Plans of TensorRT and of TensorRT-RTX, whose Python APIs are nearly one."""
