"""Messages of the control services; `distrib.fbs` has them in the schema language of flatbuffers.

Fields may only be appended. They are never removed or moved, and their meaning never changes. Every
integer is a ulong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

VERSION: Final = 2
"""Version of the protocol. Both ends send theirs, and the versions must be equal."""


@dataclass
class Reply:
    """The reply to every call: a message, or JSON of the error's `to_dict`."""

    body: bytes = b""
    error: str = ""


@dataclass
class Empty:
    """A request or reply without further content."""

    version: int = VERSION


@dataclass
class Status:
    """The status of a task, which is the first request to a task.

    `incarnation` changes with each restart of the task. `devices` is a JSON list of the results of
    DeviceDescription.to_dict. `wire_port` is the port for values. `packages` lists packages that
    may add kernels, with their versions; tasks with equal packages have equal kernels. `heart_port`
    is the port of the probe process.
    """

    version: int = VERSION
    incarnation: int = 0
    task: str = ""
    devices: list[str] = field(default_factory=list)
    wire_port: int = 0
    packages: list[str] = field(default_factory=list)
    heart_port: int = 0


@dataclass
class KernelsOf:
    """Request the kernels of a device type; in the reply, the kernels as JSON."""

    device_type: str = ""
    kernels: str = ""


@dataclass
class OpenSession:
    """Open a session: `config` is a ConfigProto."""

    version: int = VERSION
    config: bytes = b""


@dataclass
class Session:
    """A session of a master: its number, the cluster's devices, and the tasks' incarnations."""

    session: int = 0
    devices: list[str] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)


@dataclass
class Signature:
    """Plan a step: names of outputs and nodes; `size` is the value of unknown sizes.

    If `partial`, the client feeds and fetches while the step runs. `timeout` is the number of
    milliseconds that planning may wait for tasks and other threads; 0 for the timeout of the
    session.
    """

    session: int = 0
    feeds: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    size: int = 0
    partial: bool = False
    timeout: int = 0


@dataclass
class Planned:
    """The number of a planned signature within its session.

    For a partial one, also the device from which the client feeds and fetches, and for each fetch
    the positions of the feeds that it needs, joined by commas.
    """

    signature: int = 0
    home: str = ""
    needs: list[str] = field(default_factory=list)


@dataclass
class SessionRequest:
    """A request that concerns one session, such as closing it.

    `timeout` is the number of milliseconds that an extension of the graph may wait; 0 for the
    timeout of the session.
    """

    session: int = 0
    timeout: int = 0


@dataclass
class Reset:
    """Drop the state in the named containers, or in all."""

    every: bool = False
    containers: list[str] = field(default_factory=list)


@dataclass
class Part:
    """The partition of one device, encoded by `part_to_bytes`."""

    device: str = ""
    graph: bytes = b""


@dataclass
class Register:
    """Register a task's partitions of one signature; the session may be `isolated`.

    If an earlier signature has the same partitions, `same_as` is its number, and no partitions are
    sent.
    """

    session: int = 0
    signature: int = 0
    parts: list[Part] = field(default_factory=list)
    isolated: bool = False
    same_as: int = 0


@dataclass
class Join:
    """Wait, with a time limit, until a group of devices has `size` members.

    The values that the member sends are stored under `number`.
    """

    key: int = 0
    size: int = 0
    device: str = ""
    number: int = 0
    milliseconds: int = 0


@dataclass
class Group:
    """The members of a group in order: their devices, and the numbers of their `Join`s."""

    devices: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


@dataclass
class Report:
    """The report of a task: its work since its start, and its current state.

    `state` is "idle", "running", or the reason why it is unknown. `steps` is the number of ended
    steps, `running` the number of running ones. The numbers of bytes count the value connections of
    the process. `milliseconds` is the time since the start of the task.
    """

    version: int = VERSION
    incarnation: int = 0
    task: str = ""
    state: str = ""
    steps: int = 0
    running: int = 0
    sessions: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    milliseconds: int = 0


@dataclass
class Reports:
    """The reports of all tasks of a cluster, collected by one of them."""

    tasks: list[Report] = field(default_factory=list)


@dataclass
class Advance:
    """Request to feed a partial run and to wait for some of its fetches.

    Feeds and fetches have the names under which the step sends and receives them. `complete`
    announces that no further request will follow, so that the reply is sent at the end of the step.
    `ends` announces that the run is abandoned.
    """

    session: int = 0
    step: int = 0
    fed: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    complete: bool = False
    ends: bool = False


@dataclass
class Find:
    """Query a task's resources by container and name."""

    containers: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@dataclass
class Found:
    """For each resource of `Find`, 1 if the task has it, else 0."""

    here: list[int] = field(default_factory=list)


@dataclass
class Define:
    """Add nodes to the graph of a session; a GraphDef follows as a value.

    `constants` has the names of the constants, whose values follow the GraphDef. `devices` has the
    devices that they request, and `types` the names of their element types; both may be empty.
    `timeout` is as in `Signature`. The `number`s of a client's definitions, functions and gradients
    included, grow; a definition whose number is not greater than the last one's is a repetition,
    which changes nothing. 0 for none.
    """

    session: int = 0
    constants: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    timeout: int = 0
    types: list[str] = field(default_factory=list)
    number: int = 0


@dataclass
class DefineFunction:
    """Add a function to the library of a session's graph; its body follows as in `Define`.

    `inputs` has the names of the placeholders in the body, `outputs` the names of its outputs, and
    `results` the names of the function's results; `results` may be empty. `number` is as in
    `Define`.
    """

    session: int = 0
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    timeout: int = 0
    types: list[str] = field(default_factory=list)
    number: int = 0


@dataclass
class Differentiate:
    """Add gradients of the sum of `ys` with respect to `xs` to the graph of a session.

    `grad_ys` has the initial gradients, one for each y; empty means ones. If `dense`, sparse
    gradients are converted to dense ones. If `nodes`, the reply contains the added nodes as a
    GraphDef, and if also `names`, then their names as a vector of strings. `scope` is the name
    scope of the nodes, by default "gradients". `number` is as in `Define`; a repetition gets the
    reply to the last request for gradients.
    """

    session: int = 0
    ys: list[str] = field(default_factory=list)
    xs: list[str] = field(default_factory=list)
    grad_ys: list[str] = field(default_factory=list)
    scope: str = ""
    dense: bool = False
    nodes: bool = False
    timeout: int = 0
    names: bool = False
    number: int = 0


@dataclass
class Gradients:
    """The names of gradients, one for each x; "" if no y depends on it.

    For a sparse gradient, which is given by its values, `indices` has the name of its indices, and
    `shapes` the name of its shape if known. All other entries are "".
    """

    values: list[str] = field(default_factory=list)
    indices: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)


@dataclass
class Names:
    """Request outputs or functions of a session's graph by name; in a reply, their names.

    If a request has no names, all functions are listed.
    """

    session: int = 0
    names: list[str] = field(default_factory=list)
    timeout: int = 0


MESSAGES: Final = (
    Reply,
    Empty,
    Status,
    KernelsOf,
    OpenSession,
    Session,
    Signature,
    Planned,
    SessionRequest,
    Reset,
    Part,
    Register,
    Join,
    Group,
    Advance,
    Find,
    Found,
    Report,
    Reports,
    Define,
    DefineFunction,
    Differentiate,
    Gradients,
    Names,
)
