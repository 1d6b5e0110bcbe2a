"""Starting a cluster: as processes of this machine, on Ray, on Kubernetes, or under Slurm.

A `Launch` describes the cluster, in the same way for all of them. `local.py` and `ray.py` start and
watch tasks; `kubernetes.py` writes what its managers start; `slurm.py` reads where Slurm has
started this process. Each task learns its place from `TF_CONFIG`.
"""

from __future__ import annotations

from weft_distrib.launch.spec import Job, Launch, Place

__all__ = ["Job", "Launch", "Place"]
