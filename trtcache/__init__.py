"""An engine cache for inference: ccache for TensorRT, TensorRT-RTX and AOTInductor."""
