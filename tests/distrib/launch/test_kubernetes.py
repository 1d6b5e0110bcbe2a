"""Manifests conform to the published schemas and use the pod names of Kubernetes."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

from weft import errors
from weft_distrib.launch import Job, Launch
from weft_distrib.launch.kubernetes import manifests, to_yaml

PROGRAM = ("python", "train.py", "--name=$(x)")
LAUNCH = Launch(
    "digits",
    [Job("ps", 1, PROGRAM), Job("worker", 2, PROGRAM, cpus=1.5, gpus=1, memory=1 << 30)],
    restarts=3,
    environment={"A": "1: 2$"},
)
KUBEFLOW = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


def by_kind(form: Any) -> list[dict[str, Any]]:
    """The objects as they are read from the YAML, each held against its schema."""
    objects = list(yaml.safe_load_all(to_yaml(manifests(LAUNCH, "r/digits:1", form))))
    assert objects == manifests(LAUNCH, "r/digits:1", form)
    for each in objects:
        model = KUBEFLOW.get(each["kind"])
        if model is None:
            kubernetes_validate.validate(each, "1.33", strict=True)
        else:  # which drops what it does not know
            assert model.from_dict(each).to_dict() == each
    return objects


def config(job: dict[str, Any], index: int) -> Any:
    """The TF_CONFIG of a pod, as Kubernetes puts it together."""
    (container,) = job["template"]["spec"]["containers"]
    number, variable = container["env"][:2]
    assert "job-completion-index" in number["valueFrom"]["fieldRef"]["fieldPath"]
    return json.loads(variable["value"].replace(f"$({number['name']})", str(index)))


def test_jobs() -> None:
    service, ps, worker = by_kind("jobs")
    assert service["spec"]["clusterIP"] == "None"
    labels = worker["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert worker["spec"]["completions"] == 2 and worker["spec"]["backoffLimitPerIndex"] == 3
    assert config(worker["spec"], 1) == {
        "cluster": {
            "ps": ["digits-ps-0.digits:2222"],
            "worker": ["digits-worker-0.digits:2222", "digits-worker-1.digits:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert config(ps["spec"], 0)["task"] == {"type": "ps", "index": 0}
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    # Kubernetes makes one of two, and would put a variable into $(x).
    assert container["command"] == ["python", "train.py", "--name=$$(x)"]
    assert {"name": "A", "value": "1: 2$$"} in container["env"]
    assert container["resources"]["limits"] == {"memory": "1073741824", "nvidia.com/gpu": "1"}


def test_a_job_set() -> None:
    _, job_set = by_kind("jobset")
    ps, worker = job_set["spec"]["replicatedJobs"]
    assert config(worker["template"]["spec"], 0)["cluster"]["ps"] == ["digits-ps-0-0.digits:2222"]
    assert job_set["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]
    assert ps["replicas"] == 1


def test_a_train_job() -> None:
    _, runtime, job = by_kind("trainjob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    worker = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]
    assert worker["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"
    }
    assert worker["spec"]["template"]["spec"]["containers"][0]["name"] == "node"


def test_servers_alone_are_no_train_job() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="a job whose program ends"):
        manifests(Launch("digits", [Job("ps", 1)]), "r/digits:1", "trainjob")


def test_names_that_pods_cannot_have_are_refused() -> None:
    long = Launch("a" * 29, [Job("b" * 30, 11, PROGRAM)])
    assert manifests(long, "r/digits:1", "jobs")
    with pytest.raises(errors.InvalidArgumentError, match=r"at most 63 characters, and .* has 65"):
        manifests(long, "r/digits:1", "jobset")
