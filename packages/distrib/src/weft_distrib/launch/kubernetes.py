"""Kubernetes manifests of a launch: a headless Service, and Jobs, a JobSet or a TrainJob.

Each pod gets its task number from its index, which Kubernetes inserts into `TF_CONFIG`. So a
container runs its program without a wrapper.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal

from weft_distrib.cluster.environment import VARIABLE
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.launch.spec import Job, Launch
from weft_tensor import errors

PORT: Final = 2222

Form = Literal["jobs", "jobset", "trainjob"]

_LABEL_CHARACTERS: Final = 63
"""Maximum length of a host name label, and so of a pod's name."""

_NUMBER = "WEFT_TASK"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_LABEL = "app.kubernetes.io/instance"
_TRAINER = "trainer.kubeflow.org/trainjob-ancestor-step"


def manifests(launch: Launch, image: str, form: Form) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of a launch, in the order to apply them.

    Args:
      launch: the launch. A failed task is restarted in a new pod with the same name.
      image: the image of the containers, which contains weft and the program.
      form: "jobs" for one Indexed Job per job; "jobset" for a JobSet of them, which ends when all
        jobs except servers have completed; "trainjob" for a TrainingRuntime and a TrainJob of
        Kubeflow.
    Raises: InvalidArgumentError: the form is unknown; names of pods would be too long; or the
      launch has no job that Kubeflow could train.

    Examples:
      >>> from weft_distrib.launch import Job, Launch, kubernetes
      >>> launch = Launch("digits", [Job("ps", 1), Job("worker", 2, ("python", "train.py"))])
      >>> [each["kind"] for each in kubernetes.manifests(launch, "registry/digits:1", "jobset")]
      ['Service', 'JobSet']
    """
    if form == "jobs":
        return [_service(launch), *_jobs(launch, image)]
    if form == "jobset":
        return [_service(launch), _job_set(launch, image)]
    if form == "trainjob":
        return [_service(launch), *_train_job(launch, image)]
    raise errors.InvalidArgumentError(f"form must be 'jobs', 'jobset' or 'trainjob', got {form!r}")


def to_yaml(objects: list[dict[str, Any]]) -> str:
    """Encode objects as YAML documents.

    Raises: FailedPreconditionError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise errors.FailedPreconditionError(
            "manifests require the package PyYAML: pip install weftml-distrib[kubernetes]"
        ) from error
    return str(yaml.safe_dump_all(objects, sort_keys=False, width=100))


def _service(launch: Launch) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": launch.name, "labels": {_LABEL: launch.name}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # tasks look for each other before all are ready
            "selector": {_LABEL: launch.name},
            "ports": [{"name": "control", "port": PORT, "protocol": "TCP"}],
        },
    }


def _jobs(launch: Launch, image: str) -> list[dict[str, Any]]:
    cluster = _cluster(launch, lambda job: f"{launch.name}-{job.name}")
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{launch.name}-{job.name}", "labels": {_LABEL: launch.name}},
            "spec": _job(launch, job, image, cluster),
        }
        for job in launch.jobs
    ]


def _job_set(launch: Launch, image: str) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": launch.name, "labels": {_LABEL: launch.name}},
        "spec": _job_set_spec(launch, image, trains=None),
    }


def _job_set_spec(launch: Launch, image: str, trains: Job | None) -> dict[str, Any]:
    cluster = _cluster(launch, lambda job: f"{launch.name}-{job.name}-0")
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "subdomain": launch.name},
        "replicatedJobs": [
            {
                "name": job.name,
                "replicas": 1,
                "template": {
                    **({"metadata": {"labels": {_TRAINER: "trainer"}}} if job is trains else {}),
                    "spec": _job(launch, job, image, cluster, "node"),
                },
            }
            for job in launch.jobs
        ],
    }
    finite_jobs = [job.name for job in launch.jobs if not job.serves]
    if finite_jobs:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": finite_jobs}
    return spec


def _train_job(launch: Launch, image: str) -> list[dict[str, Any]]:
    trains = next((job for job in launch.jobs[::-1] if not job.serves), None)
    if trains is None:
        raise errors.InvalidArgumentError(
            "a TrainJob requires a job whose program ends; all jobs of this launch are servers"
        )
    api, metadata = "trainer.kubeflow.org/v1alpha1", {"name": launch.name}
    runtime = {
        "apiVersion": api,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            "mlPolicy": {"numNodes": trains.tasks},
            "template": {"spec": _job_set_spec(launch, image, trains)},
        },
    }
    job = {
        "apiVersion": api,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {
            "runtimeRef": {
                "apiGroup": api.partition("/")[0],
                "kind": "TrainingRuntime",
                **metadata,
            },
            "trainer": {"numNodes": trains.tasks},
        },
    }
    return [runtime, job]


def _cluster(launch: Launch, host: Callable[[Job], str]) -> ClusterSpec:
    """Return the addresses of the pods, which consist of the pod's name and the Service's."""
    hosts = {job.name: host(job) for job in launch.jobs}
    for job in launch.jobs:
        last = f"{hosts[job.name]}-{job.tasks - 1}"
        if len(last) > _LABEL_CHARACTERS:
            raise errors.InvalidArgumentError(
                f"the name of a pod must have at most {_LABEL_CHARACTERS} characters, and "
                f"{last!r} has "
                f"{len(last)}: choose shorter names"
            )
    return launch.cluster(
        [f"{hosts[job]}-{number}.{launch.name}:{PORT}" for job, number in launch.task_ids()]
    )


def _job(
    launch: Launch, job: Job, image: str, cluster: ClusterSpec, container: str = "task"
) -> dict[str, Any]:
    """Return an Indexed Job, whose pods keep their names when they are restarted."""
    return {
        "completionMode": "Indexed",
        "completions": job.tasks,
        "parallelism": job.tasks,
        "backoffLimitPerIndex": launch.restarts,
        "template": {
            "metadata": {"labels": {_LABEL: launch.name}},
            "spec": {
                "subdomain": launch.name,
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": container,
                        "image": image,
                        "command": [_escape_variables(item) for item in job.program],
                        "env": _environment(launch, job, cluster),
                        "ports": [{"name": "control", "containerPort": PORT, "protocol": "TCP"}],
                        "resources": _resources(job),
                    }
                ],
            },
        },
    }


def _environment(launch: Launch, job: Job, cluster: ClusterSpec) -> list[dict[str, Any]]:
    """Return the environment of a container; Kubernetes expands earlier variables in later ones."""
    cluster_json = json.dumps({"cluster": cluster.as_dict()})[:-1]
    task_json = f'"task": {{"type": {json.dumps(job.name)}, "index": $({_NUMBER})}}'
    return [
        {"name": _NUMBER, "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": VARIABLE, "value": f"{cluster_json}, {task_json}}}"},
        *({"name": k, "value": _escape_variables(v)} for k, v in launch.environment.items()),
    ]


def _escape_variables(text: str) -> str:
    """Escape "$(NAME)", which Kubernetes would otherwise expand."""
    return text.replace("$", "$$")


def _resources(job: Job) -> dict[str, Any]:
    expected: dict[str, Any] = {"cpu": f"{job.cpus:g}"}
    if job.memory:
        expected["memory"] = str(job.memory)
    if job.gpus:
        expected["nvidia.com/gpu"] = str(job.gpus)
    return {"requests": expected, "limits": {k: v for k, v in expected.items() if k != "cpu"}}
