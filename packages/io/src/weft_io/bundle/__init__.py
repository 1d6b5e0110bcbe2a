"""TensorFlow's checkpoint format, "tensor bundles", read and written without TensorFlow."""
