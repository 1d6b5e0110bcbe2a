"""The local server answers only its own page, and sends the data of an interval."""

import http.client
import json
import struct
import threading
from itertools import pairwise
from urllib.parse import urlsplit

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import Kind, LaneKind, load
from weft_trace.server import TraceServer


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.weft-trace"
    write_cluster(path, Cluster(random_settings(5), 5), events=200_000)
    return path


@pytest.fixture(scope="module")
def server(path):
    with TraceServer([path], b"<p>page</p>") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.stop()
        thread.join()


def get(server, path, host=None, whole=False):
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        target = path if whole else parts.path + path
        connection.request("GET", target, headers={"Host": host or parts.netloc})
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def read(data, tmp_path):
    (tmp_path / "part").write_bytes(data)
    return load(tmp_path / "part")


def test_page(server):
    status, body, headers = get(server, "")
    assert (status, body) == (200, b"<p>page</p>")
    assert headers["Cache-Control"] == "no-store"
    assert urlsplit(server.url).hostname == "127.0.0.1"


def test_requests_without_the_token_or_from_other_sites_are_refused(server):
    for path in ("/", "/0/info.json", "/wrong/0/info.json", "//"):
        assert get(server, path, whole=True)[0] == 404
    port = urlsplit(server.url).port
    for host in ("evil.example", f"localhost:{port}", f"evil.example:{port}"):
        assert get(server, "0/info.json", host=host)[0] == 403
    assert get(server, "1/info.json")[0] == 404
    assert get(server, "0/../../etc/passwd")[0] == 404


def test_info(server, path):
    events = load(path).events
    info = json.loads(get(server, "0/info.json")[1])
    assert info["name"] == "run.weft-trace" and info["events"] == len(events)
    assert info["first"] == str(events["start"].min()) and info["last"] == str(events["end"].max())
    assert info["warnings"] == [] and info["bytes"] == path.stat().st_size


def test_records_and_steps(server, path, tmp_path):
    trace, part = load(path), read(get(server, "0/records")[1], tmp_path)
    assert not part.warnings
    for name in ("processes", "lanes", "nodes", "iterations", "steps"):
        assert getattr(part, name) == getattr(trace, name)
    np.testing.assert_array_equal(part.events, trace.events[trace.events["kind"] == Kind.STEP])


def test_events_of_an_interval(server, path, tmp_path):
    trace = load(path)
    first, last = (int(t) for t in np.quantile(trace.events["start"], [0.5, 0.51]))
    query = f"0/events?from={first}&to={last}&limit="
    status, body, _ = get(server, query + "100000")
    assert status == 200
    records = get(server, "0/records")[1]
    part = read(records + body[16:], tmp_path)
    shown = part.events[part.events["kind"] != Kind.STEP]
    expected = trace.events
    is_inside = (expected["start"] <= last) & (expected["end"] >= first)
    expected = expected[is_inside & (expected["kind"] != Kind.STEP)]
    np.testing.assert_array_equal(np.sort(shown), np.sort(expected))
    assert get(server, query + str(len(expected) // 2))[0] == 413
    assert get(server, f"0/events?from={trace.events['start'][0]}&to={1 << 62}&limit=9")[0] == 413


def bins_of(server, trace, first, last, bins):
    status, body, _ = get(server, f"0/levels?from={first}&to={last}&bins={bins}")
    assert status == 200
    lanes, count, _ = struct.unpack_from("<IIQ", body)
    assert (lanes, count) == (len(trace.lanes), bins) and len(body) == 16 + 2 * lanes * bins
    return np.frombuffer(body, np.uint8, offset=16).reshape(lanes, 2, bins)


@pytest.mark.parametrize(
    ("zoom", "bins", "error"),
    [(1.0, 8, 0.05), (1.0, 100, 0.01), (0.001, 100, 0.01)],
    ids=["levels", "all-events", "some-events"],
)
def test_bins_show_how_busy_lanes_are(server, path, zoom, bins, error):
    trace = load(path)
    events = trace.events
    first = int(events["start"].min())
    last = first + int((events["end"].max() - first) * zoom)
    table = bins_of(server, trace, first, last, bins)
    width = (last - first) / bins
    for i, lane in enumerate(trace.lanes):
        if lane.kind is not LaneKind.THREAD or lane.name == "MainThread":
            continue
        mine = events[(events["lane"] == i) & np.isin(events["kind"], [Kind.KERNEL, Kind.REGION])]
        starts, ends = np.clip(mine["start"], first, last), np.clip(mine["end"], first, last)
        edges = first + np.arange(bins + 1) * width
        times = [
            np.clip(np.minimum(ends, b) - np.maximum(starts, a), 0, None).sum() / width
            for a, b in pairwise(edges)
        ]
        assert np.abs(table[i, 1] / 255 - times).mean() < error
        assert (table[i, 1][np.array(times) > 0.001] > 0).all()
        busy = table[i, 1] > 100
        assert np.isin(table[i, 0][busy], [Kind.KERNEL, Kind.REGION, Kind.GENERATED]).all()


def test_levels_of_memory_are_shares_of_the_peak(server, path):
    trace = load(path)
    first, last = int(trace.events["start"].min()), int(trace.events["end"].max())
    table = bins_of(server, trace, first, last, 2000)
    for i, lane in enumerate(trace.lanes):
        if lane.kind is LaneKind.MEMORY:
            assert 50 < table[i, 1].max() <= 255


@pytest.mark.parametrize(
    "query",
    [
        "0/events", "0/events?from=5&to=4&limit=1", "0/events?from=a&to=4&limit=1",
        "0/events?from=-1&to=4&limit=1", "0/levels?from=1&to=4&bins=0",
        "0/levels?from=1&to=4&bins=8193", "0/levels?from=1&to=99999999999999999999&bins=2",
        "0/levels?" + "&".join(["bins=2"] * 20),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(server, query):
    assert get(server, query)[0] == 400
