"""How ONNX ops become nodes, a module for each family of ops."""
