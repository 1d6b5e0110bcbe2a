"""`wf.config`: the devices of this process."""

from weft.config import experimental as experimental
