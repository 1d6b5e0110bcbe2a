"""TensorFlow's checkpoints, "tensor bundles": read and written without TensorFlow."""
