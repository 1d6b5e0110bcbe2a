"""The kernels on emulated processors, compared with this machine, on the conformance files.

Those are AArch64 under qemu, with and without dot products, and WebAssembly under Node.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.browser import chrome
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf
from weft_lite import Interpreter, compiling, library, targets
from weft_lite.schema.enums import DataType

pytest.importorskip("ziglang")
pytestmark = pytest.mark.long

HERE = Path(__file__).parents[1] / "foreign"
WASI = """\
const { WASI } = require('node:wasi');
const fs = require('node:fs');
const wasi = new WASI({ version: 'preview1', args: ['runner', '/b/bundle', '/b/out'],
                        preopens: { '/b': process.argv[2] } });
WebAssembly.instantiate(fs.readFileSync(process.argv[3]), wasi.getImportObject())
  .then(({ instance }) => process.exit(wasi.start(instance)));
"""


WORKER = """\
import { Worker } from "node:worker_threads";
const worker = new Worker("./wrapper.mjs", { argv: process.argv.slice(2) });
worker.on("error", (error) => { throw error; });
worker.on("exit", (code) => process.exit(code));
"""
PAGE = """\
<script type="module">
const bytes = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
const worker = new Worker("worker.mjs", { type: "module" });
worker.onmessage = ({ data }) => { document.title = [...data.scores].join(" "); };
worker.postMessage({ runtime: await bytes("weft_lite.wasm"), model: await bytes("bright.weftlite"),
                     values: { images: new Float32Array(64).fill(1.5) } });
</script>
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of files of every kernel in every type, and of products of bytes of odd sizes."""
    made = tmp_path_factory.mktemp("foreign")
    with open(made / "bundle", "wb") as file:
        for data in load(ROOT / "tests/lite/fuzz/seeds.py").ran(made / "ran"):
            file.write(struct.pack("<Q", len(data)) + data)
    return made


@pytest.fixture(scope="module")
def native(folder: Path) -> list[Any]:
    built = Path(library.load()._name)
    command = [*compiling.compiler(), "-I", str(compiling.RUNTIME), str(HERE / "runner.c")]
    command += [str(built), f"-Wl,-rpath,{built.parent}", "-o", str(folder / "runner")]
    subprocess.run(command, check=True)
    subprocess.run([folder / "runner", folder / "bundle", folder / "native"], check=True)
    return results(folder / "native")


def results(path: Path) -> list[Any]:
    """For each file its status, and the outputs."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        status, count = struct.unpack_from("<qQ", data, at)
        at, outputs = at + 16, []
        for _ in range(count):
            dtype, size = struct.unpack_from("<QQ", data, at)
            name = DataType(dtype).name.lower()
            outputs.append(np.frombuffer(data[at + 16 : at + 16 + size], name))
            at += 16 + size
        found.append((status, outputs))
    return found


def compare(got: list[Any], wanted: list[Any]) -> None:
    """Floats differ by roundings, and integers made of them by one."""
    assert len(got) == len(wanted) > 500
    for place, ((status, ours), (other, theirs)) in enumerate(zip(got, wanted, strict=True)):
        assert status == other, place
        for a, b in zip(ours, theirs, strict=True):
            if a.dtype.kind == "f":
                np.testing.assert_allclose(
                    a, b, 2e-3 if a.itemsize == 2 else 1e-4, 1e-5, err_msg=place
                )
            else:
                assert np.abs(a.astype("int64") - b.astype("int64")).max(initial=0) <= 1, place


def built(target: str, folder: Path, name: str) -> Path:
    """The runner, or another program, for a target, whole in one file."""
    out = folder / target
    if not (out / "libweft_lite.a").exists():
        targets.build(target, out)
    program = out / name
    flags = targets.flags_of(target, "runner")
    command = [*targets.zig(), "cc", "-target", target, *flags, "-static", "-I", str(out)]
    source = HERE / Path(name).with_suffix(".c")
    command += [str(source), str(out / "libweft_lite.a"), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no qemu-aarch64")
@pytest.mark.parametrize("cpu", ["cortex-a57", "max"])
def test_aarch64(folder: Path, native: list[Any], cpu: str) -> None:
    program = built("aarch64-linux-musl", folder, "runner")
    command = ["qemu-aarch64", "-cpu", cpu, program, folder / "bundle", folder / cpu]
    subprocess.run(command, check=True)
    compare(results(folder / cpu), native)


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_webassembly(folder: Path, native: list[Any]) -> None:
    program = built("wasm32-wasi", folder, "runner.wasm")
    (folder / "wasi.cjs").write_text(WASI)
    subprocess.run(["node", "--no-warnings", folder / "wasi.cjs", folder, program], check=True)
    compare(results(folder / "out"), native)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A folder with a train step and its inputs, and the session's losses."""
    folder = tmp_path_factory.mktemp("training")
    small: Any = load(ROOT / "tests/lite/convert/test_training.py")
    batches = small.data(batches=40)
    with wf.Graph().as_default(), wf.Session() as session:
        model = small.Model(wf.train.AdamOptimizer(0.01), "pooled")
        session.run(wf.global_variables_initializer())
        inputs = [model.images, model.labels]
        content = wf.lite.Converter.from_session(
            session, inputs, [model.loss], variables=wf.global_variables()
        ).convert()
        losses = small.losses(session, model, batches)
    parts = [struct.pack("<Q", len(content)), content]
    parts += [array.tobytes() for batch in batches for array in batch]
    (folder / "bundle").write_bytes(b"".join(parts))
    return folder, losses


def check_training(out: Path, losses: list[float]) -> None:
    """Compare the losses on a device with the session's; the checkpoint restores here."""
    data = out.read_bytes()
    actual = np.frombuffer(data[: 4 * len(losses)], "float32")
    np.testing.assert_allclose(actual, losses, rtol=1e-2, atol=1e-3)
    assert actual[-1] < 0.5 * actual[0]
    assert data[4 * len(losses) :].startswith(b"WLCHECK1")


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no qemu-aarch64")
def test_training_on_aarch64(training: tuple[Path, list[float]]) -> None:
    folder, losses = training
    program = built("aarch64-linux-musl", folder, "trainer")
    subprocess.run(["qemu-aarch64", program, folder / "bundle", folder / "aarch64"], check=True)
    check_training(folder / "aarch64", losses)


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_training_in_webassembly(training: tuple[Path, list[float]]) -> None:
    folder, losses = training
    program = built("wasm32-wasi", folder, "trainer.wasm")
    (folder / "wasi.cjs").write_text(WASI)
    subprocess.run(["node", "--no-warnings", folder / "wasi.cjs", folder, program], check=True)
    check_training(folder / "out", losses)


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_the_wrapper_in_javascript(folder: Path) -> None:
    targets.build("wasm32-wasi", folder / "js")
    shutil.copy(HERE / "wrapper.mjs", folder / "js")
    corpus = ROOT / "tests" / "lite" / "runtime" / "corpus" / "convnet.weftlite"
    subprocess.run(["node", "wrapper.mjs", corpus], cwd=folder / "js", check=True)
    (folder / "js" / "start.mjs").write_text(WORKER)
    subprocess.run(["node", "start.mjs", corpus], cwd=folder / "js", check=True)


@pytest.mark.parametrize("place", ["page", "worker"])
def test_the_pages_about_browsers_in_a_browser(place: str, tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        images = wf.placeholder(wf.float32, [None, 8, 8, 1], name="images")
        filters = np.random.default_rng(0).normal(size=(64, 2)).astype("float32")
        scores = wf.nn.softmax(wf.matmul(wf.reshape(images, [-1, 64]), filters), name="scores")
        largest = {"images": [4 if place == "page" else 1, 8, 8, 1]}
        converter = wf.lite.Converter.from_session(session, [images], [scores], largest)
        (tmp_path / "bright.weftlite").write_bytes(converter.convert())
    interpreter = Interpreter(tmp_path / "bright.weftlite")
    interpreter.resize_tensor_input(0, [1, 8, 8, 1])
    wanted = interpreter.get_signature_runner()(images=np.full([1, 8, 8, 1], 1.5, "float32"))

    name = "lite.md" if place == "page" else "lite-shipping.md"
    text = (ROOT / "docs" / name).read_text("utf-8")
    (program,) = re.findall(r"^```js\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    targets.build("wasm32-wasi", tmp_path, targets.kinds_of([tmp_path / "bright.weftlite"]))
    if place == "page":
        program += "document.title = [...scores].join(' ');\n"
    (tmp_path / f"{place}.mjs").write_text(program)
    script = '<script type="module" src="page.mjs"></script>' if place == "page" else PAGE
    (tmp_path / "page.html").write_text(script)
    with served(tmp_path) as address, chrome(tmp_path) as browser:
        from selenium.webdriver.support.wait import WebDriverWait

        browser.get(f"{address}/page.html")
        WebDriverWait(browser, 60).until(lambda each: " " in each.title)
        found = [float(part) for part in browser.title.split()]
    np.testing.assert_allclose(found, wanted["scores"][0], 1e-4)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
