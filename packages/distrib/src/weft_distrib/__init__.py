"""Clusters: servers, masters and workers, and training on many machines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "AllReduceOptimizer",
    "ClusterSpec",
    "Credentials",
    "GreedyLoadBalancingStrategy",
    "Server",
    "SyncReplicasOptimizer",
    "all_gather",
    "all_reduce",
    "broadcast_receive",
    "broadcast_send",
    "byte_size_load_fn",
    "replica_device_setter",
]

if TYPE_CHECKING:
    from weft_distrib.cluster.spec import ClusterSpec
    from weft_distrib.ops.collective import (
        all_gather,
        all_reduce,
        broadcast_receive,
        broadcast_send,
    )
    from weft_distrib.security.credentials import Credentials
    from weft_distrib.server import Server
    from weft_distrib.training.all_reduce import AllReduceOptimizer
    from weft_distrib.training.device_setter import (
        GreedyLoadBalancingStrategy,
        byte_size_load_fn,
        replica_device_setter,
    )
    from weft_distrib.training.sync_replicas import SyncReplicasOptimizer
else:  # late, since the package is also imported for its ops and kernels, which need no gRPC
    _HOMES = {
        "cluster.spec": ("ClusterSpec",),
        "ops.collective": ("all_gather", "all_reduce", "broadcast_receive", "broadcast_send"),
        "security.credentials": ("Credentials",),
        "server": ("Server",),
        "training.all_reduce": ("AllReduceOptimizer",),
        "training.device_setter": (
            "GreedyLoadBalancingStrategy",
            "byte_size_load_fn",
            "replica_device_setter",
        ),
        "training.sync_replicas": ("SyncReplicasOptimizer",),
    }

    def __getattr__(name: str) -> Any:
        for module, names in _HOMES.items():
            if name in names:
                result = getattr(import_module(f"{__name__}.{module}"), name)
                globals()[name] = result
                return result
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
