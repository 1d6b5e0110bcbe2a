"""TensorFlow's messages: GraphDef, FunctionDef and their parts, read and written."""
