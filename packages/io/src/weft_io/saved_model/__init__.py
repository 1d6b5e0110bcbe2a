"""SavedModels: directories of graphs with variables, files and signatures, as in TensorFlow.

saved_model.pb or .pbtxt    the graphs, each with its tags and signatures
variables/variables.*       their variables, a bundle
assets/                     files that they read
"""

from __future__ import annotations
