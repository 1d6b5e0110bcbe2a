"""`wf.flags`: absl's flags under TensorFlow's name."""

from absl.flags import *  # noqa: F403 - the whole module under another name
from absl.flags import FLAGS as FLAGS
