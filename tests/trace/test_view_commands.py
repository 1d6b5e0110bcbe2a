"""`weft trace html` and `open` show the viewer page."""

import http.client
import json
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace.commands import view
from weft_trace.errors import TraceError

COMMAND = [sys.executable, "-m", "weft", "trace"]


@pytest.fixture
def trace(tmp_path):
    write_cluster(tmp_path / "run.weft-trace", Cluster(random_settings(1), 1), 2)
    return tmp_path / "run.weft-trace"


def test_html_has_the_page_and_the_traces(trace, tmp_path):
    page = tmp_path / "page.html"
    subprocess.run([*COMMAND, "html", trace, trace, "-o", page], check=True)
    text = page.read_text()
    assert text.count('data-name="run.weft-trace"') == 2


def test_open_serves_the_page_until_interrupted(trace):
    command = [*COMMAND, "open", trace, "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = urlsplit(process.stdout.readline().split()[0])
        connection = http.client.HTTPConnection(url.netloc, timeout=30)
        bodies = []
        for path in ("", "0/info.json"):
            connection.request("GET", url.path + path)
            response = connection.getresponse()
            assert response.status == 200
            bodies.append(response.read())
        connection.close()
        assert b"<html" in bodies[0] and json.loads(bodies[1])["name"] == "run.weft-trace"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


def test_more_than_two_traces_are_refused():
    with pytest.raises(TraceError, match="one or two traces, got 3"):
        view._check_count(["a", "b", "c"])
