"""Rules for ONNX ops, one module for each family of ops."""
