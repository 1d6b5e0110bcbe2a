"""Clusters: servers, masters and workers, and training over many machines."""

from __future__ import annotations

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.server import Server
from weft_distrib.training.device_setter import (
    GreedyLoadBalancingStrategy,
    byte_size_load_fn,
    replica_device_setter,
)
from weft_distrib.training.sync_replicas import SyncReplicasOptimizer

__all__ = [
    "ClusterSpec",
    "GreedyLoadBalancingStrategy",
    "Server",
    "SyncReplicasOptimizer",
    "byte_size_load_fn",
    "replica_device_setter",
]
