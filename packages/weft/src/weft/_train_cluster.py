"""Lazily loaded names of `weft.train`: clusters."""

from weft_distrib.cluster.spec import *
from weft_distrib.server import *
from weft_distrib.training.device_setter import replica_device_setter as replica_device_setter
from weft_distrib.training.sync_replicas import *
