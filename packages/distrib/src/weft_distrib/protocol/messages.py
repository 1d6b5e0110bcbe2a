"""The messages of the control services; `distrib.fbs` shows them in flatbuffers' language.

Fields are appended only, never removed, moved or given another meaning. Every integer is a ulong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

VERSION: Final = 2
"""Of the protocol. Both ends must have the same one; each says its own."""


@dataclass
class Reply:
    """The reply to every call: a message, or JSON of the error's `to_dict`."""

    body: bytes = b""
    error: str = ""


@dataclass
class Empty:
    """A request or a reply that says nothing more."""

    version: int = VERSION


@dataclass
class Status:
    """The status of a task, which is requested first.

    `incarnation` changes with each restart of the task. `devices` are JSON of
    DeviceDescription.to_dict. Values are transferred over the port `wire_port`. `packages` are
    those that may add kernels, with their versions; tasks with equal ones have equal kernels. The
    task's liveness is polled at `heart_port`.
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
    """Request the kernels of a type of devices; or, in the reply, JSON of them."""

    device_type: str = ""
    kernels: str = ""


@dataclass
class OpenSession:
    """Open a session: `config` is a ConfigProto."""

    version: int = VERSION
    config: bytes = b""


@dataclass
class Session:
    """A session of a master: its number, the devices of the cluster, and their incarnations."""

    session: int = 0
    devices: list[str] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)


@dataclass
class Signature:
    """Plan a step: names of outputs and nodes; `size` is the value of unknown sizes.

    If it is `partial`, the client feeds and fetches while the step runs. `timeout` is the number of
    milliseconds that planning may wait for tasks and other threads; 0 for the session's.
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

    Of a partial one: the device that the client feeds and fetches from, and for each fetch the
    positions of the feeds that it needs, joined by commas.
    """

    signature: int = 0
    home: str = ""
    needs: list[str] = field(default_factory=list)


@dataclass
class SessionRequest:
    """A request that concerns one session, such as closing it.

    `timeout` is the number of milliseconds that an extension may wait; 0 for the session's.
    """

    session: int = 0
    timeout: int = 0


@dataclass
class Reset:
    """Drop state: of the named containers, or of all."""

    every: bool = False
    containers: list[str] = field(default_factory=list)


@dataclass
class Part:
    """The partition of one device, as encoded by `part_to_bytes`."""

    device: str = ""
    graph: bytes = b""


@dataclass
class Register:
    """Register a task's partitions of one signature of a session, which may be `isolated`.

    If they are those of an earlier signature, `same_as` is its number, and none are sent.
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
    """The members of a group, in their order: their devices, and the numbers of `Join`."""

    devices: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


@dataclass
class Report:
    """The report of a task: its work since its start, and its current state.

    `state` is "idle", "running", or the reason why it is unknown. `steps` is the number of ended
    steps, `running` that of running ones. The bytes are those of its process's value connections,
    `milliseconds` its age.
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
    """Reports of all tasks of a cluster, as seen by one of them."""

    tasks: list[Report] = field(default_factory=list)


@dataclass
class Advance:
    """Request to feed a partial run and wait for some of its fetches.

    Feeds and fetches have the names under which the step sends and receives them. `complete`
    announces that nothing will follow, so that the reply is sent at the end of the step; `ends`
    that the run is abandoned.
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
    """Add nodes to the graph of a session: a GraphDef and constants, which follow as values.

    `constants` are the names of the constants, whose values follow the GraphDef; `devices` are the
    devices that they request, and `types` the names of their element types; both may be empty.
    `timeout` is as in `Signature`.
    """

    session: int = 0
    constants: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    timeout: int = 0
    types: list[str] = field(default_factory=list)


@dataclass
class DefineFunction:
    """Add a function to the library of a session's graph; its body follows as for `Define`.

    `inputs` are the names of placeholders of the body, `outputs` those of its outputs, and
    `results` the names of the function's results, or empty.
    """

    session: int = 0
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    timeout: int = 0
    types: list[str] = field(default_factory=list)


@dataclass
class Differentiate:
    """Add gradients of the sum of `ys` with respect to `xs` to the graph of a session.

    `grad_ys` are the gradients to start from, one for each y, or empty for ones. If `dense`,
    sparse gradients are converted to dense ones. If `nodes`, the reply has the added nodes, as a
    GraphDef. `scope` is the name scope of the nodes, "gradients" by default.
    """

    session: int = 0
    ys: list[str] = field(default_factory=list)
    xs: list[str] = field(default_factory=list)
    grad_ys: list[str] = field(default_factory=list)
    scope: str = ""
    dense: bool = False
    nodes: bool = False
    timeout: int = 0


@dataclass
class Gradients:
    """The names of gradients, one for each x; "" if no y depends on it.

    Those of the values of a sparse gradient have an entry in `indices`, and those of a known shape
    in `shapes`; the others have "".
    """

    values: list[str] = field(default_factory=list)
    indices: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)


@dataclass
class Names:
    """Request the outputs or functions of a session's graph by name; or, in a reply, their names.

    If there are no names, all functions are listed.
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
