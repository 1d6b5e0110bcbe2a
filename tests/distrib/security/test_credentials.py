"""Certificates and tokens: which are accepted, and the errors for those that are not."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import Process, jobs
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_distrib.client import target as client_target
from weft_distrib.client.link import RemoteLink
from weft_distrib.liveness.heartbeat_server import Heartbeat
from weft_distrib.liveness.peer_monitor import Watch
from weft_distrib.liveness.probe_process import ANSWER
from weft_distrib.protocol import messages
from weft_distrib.security.authority import Authority, credentials_in, make_certificates
from weft_distrib.security.credentials import VARIABLES, Credentials, client_token
from weft_distrib.security.roles import Role
from weft_distrib.server import Server
from weft_distrib.wire.channel import Call
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.listener import Listener, ask, dial

TASKS = {"ps-0": "localhost", "worker-0": "localhost"}
EXPIRED_DAYS = -0.02
PORT = {"worker": ["localhost:0"]}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore credentials of the environment, and use sockets as between processes."""
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(client_target, "find_server", lambda target: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made, TASKS)
    Authority(made, 1).issue("expired", ["localhost"], Role.CLIENT, EXPIRED_DAYS)
    Authority(made, 1).issue("elsewhere", ["example.org"], Role.PEER, 1)
    Authority(made, 1).issue("former", ["localhost"], Role.PEER, EXPIRED_DAYS)
    return made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stranger")
    make_certificates(made, TASKS)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with closing(Server(PORT, credentials=credentials_in(folder, "worker-0"))) as made:
        yield made


def query(folder: Path, name: str, **others: str) -> str:
    token = "client.token" if name == "client" else "token"
    files = {
        "certificate": f"{folder}/{name}.crt",
        "key": f"{folder}/{name}.key",
        "authority": f"{folder}/authority.crt",
        "token": f"{folder}/{token}",
        **others,
    }
    return "?" + "&".join(f"{key}={path}" for key, path in files.items() if path)


def run_one(target: str, config: Any = None) -> Any:
    with wf.Graph().as_default():
        total = wf.placeholder_with_default(1.0, []) + 1.0
        with wf.Session(target, config=config) as session:
            return session.run(total)


def test_a_client_with_a_certificate(server: Server, folder: Path) -> None:
    assert run_one(server.target + query(folder, "client")) == 2.0


def test_a_client_by_the_environment(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = credentials_in(folder, "client")
    for variable, path in zip(VARIABLES.values(), found.paths, strict=True):
        monkeypatch.setenv(variable, path)
    assert run_one(server.target) == 2.0


def test_a_client_by_its_config(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = dict(zip(VARIABLES, credentials_in(folder, "client").paths, strict=True))
    token = paths.pop("token")
    config = wf.ConfigProto(experimental=wf.ConfigProto.Experimental(credentials=paths))
    with pytest.raises(errors.UnauthenticatedError, match="requires a token"):
        wf.Session(server.target, config=config)
    monkeypatch.setenv(VARIABLES["token"], token)  # what the config does not name
    monkeypatch.setenv(VARIABLES["key"], "absent")
    told: list[bytes] = []
    create = RemoteLink.create_session
    monkeypatch.setattr(
        RemoteLink,
        "create_session",
        lambda link, request, limit: (told.append(request.config), create(link, request, limit))[1],
    )
    assert run_one(server.target, config=config) == 2.0
    assert str(folder).encode() not in told[0]
    wf.Session.reset(server.target, config=config)
    other = f"?certificate={folder}/absent.crt"
    with pytest.raises(errors.NotFoundError, match=r"absent\.crt"):  # the target comes first
        wf.Session(server.target + other, config=config)


def test_who_is_refused_is_told_why(server: Server, folder: Path, stranger: Path) -> None:
    own = str(folder / "authority.crt")
    cases = {
        "": "requires TLS, and this process has no certificates",
        query(
            stranger, "client"
        ): "of the server at .* was issued by an authority that this process does not trust",
        query(stranger, "client", authority=own): "rejects this process's certificate",
        query(folder, "expired"): "rejects this process's certificate, which has expired",
        query(folder, "client", token=""): "requires a token, and the caller has none",
        query(folder, "client", token=f"{stranger}/token"): "and the caller has another one",
    }
    for told, message in cases.items():
        with pytest.raises(errors.UnauthenticatedError, match=message):
            wf.Session(server.target + told)


@pytest.mark.parametrize(
    ("name", "message"), [("elsewhere", "does not cover this address"), ("former", "has expired")]
)
def test_a_server_that_is_not_believed(folder: Path, name: str, message: str) -> None:
    with (
        closing(Server(PORT, credentials=credentials_in(folder, name))) as server,
        pytest.raises(errors.UnauthenticatedError, match=message),
    ):
        wf.Session(server.target + query(folder, "client"))


def test_a_server_without_certificates_is_not_believed(folder: Path) -> None:
    with (
        closing(Server(PORT)) as server,
        pytest.raises(errors.UnauthenticatedError, match="does not use TLS"),
    ):
        wf.Session(server.target + query(folder, "client"))


def test_sockets_refuse_by_name_as_well(folder: Path, stranger: Path) -> None:
    def told(opening: ConnectionOptions, listener: Listener) -> str:
        with pytest.raises(errors.OpError) as caught:
            dial(("localhost", listener.port), "the task", opening, 7, 10)
        return caught.value.message

    def credentials(name: str, base: Path, authority: Path) -> Credentials:
        crt, key = base / f"{name}.crt", base / f"{name}.key"
        return Credentials(str(crt), str(key), str(authority / "authority.crt"))

    served = credentials("worker-0", folder, folder)
    with closing(
        Listener("127.0.0.1", ConnectionOptions(1, served), 7, lambda call: None)
    ) as listener:
        for shown, message in [
            (
                credentials("client", stranger, stranger),
                "certificate of the task was issued by an authority",
            ),
            (credentials("client", stranger, folder), "rejects this process's certificate"),
            (credentials("expired", folder, folder), "certificate: it has expired"),
            (None, "the task is lost"),
        ]:
            assert message in told(ConnectionOptions(1, shown), listener)
    with closing(Listener("127.0.0.1", ConnectionOptions(1), 7, lambda call: None)) as listener:
        assert "before the TLS handshake" in told(ConnectionOptions(1, served), listener)


def test_clients_may_not_call_what_peers_may(server: Server, folder: Path) -> None:
    from weft_distrib.protocol.service import CLEAR, STATUS, ControlClient
    from weft_distrib.wire import methods

    address = server.target.removeprefix("grpc://")
    for name, token in (("client", "client.token"), ("client", "token"), ("ps-0", "client.token")):
        crt, key = f"{folder}/{name}.crt", f"{folder}/{name}.key"
        shown = Credentials(crt, key, f"{folder}/authority.crt", f"{folder}/{token}")
        opening = ConnectionOptions(messages.VERSION, shown)  # which claims to be a peer
        with closing(ControlClient(address, "it", opening)) as control:
            status = control.call(STATUS, messages.Empty(), 10)
            with pytest.raises(errors.PermissionDeniedError, match="Clear is only permitted for"):
                control.call(CLEAR, messages.Reset(True), 10)
        to = ("localhost", status.wire_port)
        with closing(dial(to, "it", opening, status.incarnation, 10)) as channel:
            for method in range(1, 8):
                if method not in methods.OF_MASTERS:
                    with pytest.raises(
                        errors.PermissionDeniedError, match="is only permitted for tasks"
                    ):
                        ask(channel, method, b"", (), 10)


def test_a_token_alone_tells_peers_from_clients(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    credentials = Credentials(token=str(tmp_path / "token"))
    assert not credentials.secure
    assert credentials.role_of_token(b"0123456789abcdef") is Role.PEER
    assert credentials.role_of_token(client_token(b"0123456789abcdef")) is Role.CLIENT
    assert credentials.role_of_token(b"0123456789abcdeF") is None
    with closing(Server(PORT, credentials=credentials)) as server:
        assert run_one(f"{server.target}?token={tmp_path}/token") == 2.0
        with pytest.raises(errors.UnauthenticatedError, match="WEFT_TOKEN"):
            wf.Session(server.target)


def test_tasks_believe_each_other(folder: Path) -> None:
    cluster = jobs(ps=1, worker=1)
    command = ["--certificate", f"{folder}/ps-0.crt", "--key", f"{folder}/ps-0.key"]
    command += ["--authority", f"{folder}/authority.crt", "--token", f"{folder}/token"]
    credentials = credentials_in(folder, "worker-0")
    big = np.random.default_rng(0).normal(size=3_000_000).astype(np.float32)
    with (
        Process(cluster, "ps", 0, command),
        closing(Server(cluster, "worker", 0, credentials=credentials)) as worker,
        wf.Graph().as_default(),
    ):
        x = wf.placeholder(wf.float32, [None])
        with wf.device("/job:ps/task:0"):
            y = x * 2.0
        with wf.device("/job:worker/task:0"):
            z = y + 1.0
        with wf.Session(worker.target + query(folder, "client")) as session:
            np.testing.assert_array_equal(session.run(z, {x: big}), big * 2 + 1)


def test_values_of_sizes_around_those_of_records_and_buffers(folder: Path) -> None:
    opening = ConnectionOptions(1, credentials_in(folder, "worker-0"), local=False)
    bounds = (1 << 14, 1 << 15, 1 << 16, 3 << 15, 1 << 17, 1 << 20, 3 << 20)
    sizes = [0, 1, *[bound + more for bound in bounds for more in (-17, -1, 0, 1)]]
    values = [np.arange(size, dtype=np.uint32).astype(np.uint8) for size in sizes]
    with closing(
        Listener("127.0.0.1", opening, 7, lambda call: call.reply(call.values, call.meta))
    ) as listener:
        channel = dial(("localhost", listener.port), "the other", opening, 7, 30)
        for some in (*([value] for value in values), values):
            got, meta = ask(channel, 1, b"meta", some, 60)
            assert meta == b"meta"
            for value, other in zip(some, got, strict=True):
                np.testing.assert_array_equal(other, value)
        channel.close()


def test_the_pulse_is_told_to_those_with_certificates_only(folder: Path) -> None:
    credentials = credentials_in(folder, "worker-0")
    lost: list[Any] = []
    with closing(Heartbeat("127.0.0.1", credentials)) as heart:
        address = ("127.0.0.1", heart.port)
        watched = Watch().add(
            address, "a task", lost.append, credentials=credentials, host="localhost"
        )
        wait_until(lambda: watched.heard > 1 or lost)
        watched.stop()
        with socket.create_connection(address) as plain, suppress(ConnectionError):
            plain.sendall(b"?" * 100)
            assert len(plain.recv(100)) < ANSWER.size  # TLS's alert, or the end
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(folder / "authority.crt")
        with (
            socket.create_connection(address) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as bare,
            pytest.raises(OSError),
        ):
            bare.sendall(b"?")
            if not bare.recv(100):
                raise ConnectionResetError
    assert not lost


def test_certificates_are_read_anew_when_they_change(folder: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, TASKS)
    with closing(Server(PORT, credentials=credentials_in(tmp_path, "worker-0"))) as server:
        assert run_one(server.target + query(tmp_path, "client")) == 2.0
        for path in tmp_path.glob("*"):
            path.unlink()
        for _ in range(2):  # while files lack, those of before hold
            make_certificates(tmp_path, TASKS)
        assert run_one(server.target + query(tmp_path, "client")) == 2.0
        with pytest.raises(errors.UnauthenticatedError):
            wf.Session(server.target + query(folder, "client"))


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "1e-9", "1e9"])
def test_certificates_that_would_not_be_valid_are_not_made(days: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with pytest.raises(errors.InvalidArgumentError, match="between one minute and 36500 days, got"):
        make_certificates(folder, TASKS, float(days))
    assert not folder.exists()


def test_calls_come_while_bytes_go(folder: Path) -> None:
    credentials = credentials_in(folder, "worker-0")
    big = np.arange(6_000_000, dtype=np.uint8)

    def echo(call: Call) -> None:
        call.reply(call.values, call.meta)

    with closing(Listener("127.0.0.1", ConnectionOptions(1, credentials), 7, echo)) as listener:
        channel = dial(("localhost", listener.port), "it", ConnectionOptions(1, credentials), 7, 10)
        from weft_distrib.wire.future import Reply

        replies = [Reply() for _ in range(12)]
        for i, reply in enumerate(replies):
            channel.call(1, b"", [big if i % 2 else np.int64(i)], reply)
        for i, reply in enumerate(replies):
            assert reply.wait(60)
            np.testing.assert_array_equal(reply.result()[0][0], big if i % 2 else i)
        channel.close()


def test_files_that_are_wrong(folder: Path, stranger: Path, tmp_path: Path) -> None:
    crt, key, authority = (f"{folder}/{n}" for n in ("client.crt", "client.key", "authority.crt"))
    (tmp_path / "short").write_text("short")
    for arguments, kind, message in [
        ((crt, key), errors.InvalidArgumentError, "'authority'.* missing"),
        ((crt, f"{stranger}/client.key", authority), errors.InvalidArgumentError, "PEM files"),
        ((crt, key, f"{tmp_path}/short"), errors.InvalidArgumentError, "PEM files"),
        ((crt, key, f"{tmp_path}/none"), errors.NotFoundError, "cannot be read"),
        (("", "", "", f"{tmp_path}/short"), errors.InvalidArgumentError, "16 to 1024"),
    ]:
        with pytest.raises(kind, match=message):
            Credentials(*arguments)
    with pytest.raises(errors.InvalidArgumentError, match="may have only certificate"):
        wf.Session("grpc://localhost:1?password=x")


def test_what_the_authority_writes_is_its_owners(folder: Path) -> None:
    for path in folder.glob("*"):
        open_to_all = os.stat(path).st_mode & 0o077
        assert bool(open_to_all) == (path.suffix == ".crt"), path
