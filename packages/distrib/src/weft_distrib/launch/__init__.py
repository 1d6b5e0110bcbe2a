"""Start of a cluster: as processes of this machine, on Ray, on Kubernetes, or under Slurm.

A `Launch` describes the cluster independently of the manager. `local.py` and `ray.py` start and
watch tasks; `kubernetes.py` writes manifests; `slurm.py` finds the task of a process that Slurm has
started. Each task receives its job and number through `TF_CONFIG`.
"""

from __future__ import annotations

from weft_distrib.launch.spec import Job, Launch, TaskId

__all__ = ["Job", "Launch", "TaskId"]
