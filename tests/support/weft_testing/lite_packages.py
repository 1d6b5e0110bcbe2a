"""Models and readers for tests of the packages that `weft-lite build` writes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
from weft_lite import Interpreter, library


def small_model(path: Path, int8: bool = False) -> Path:
    """Write a model of a convolution and a softmax, from `x` to `y`.

    Args:
      path: the file to write.
      int8: True for a convolution in int8 and one image, False for floats and up to 4 images.
    """
    generator = np.random.default_rng(0)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1 if int8 else None, 6, 6, 3], name="x")
        filters = wf.constant(generator.normal(size=(3, 3, 3, 5)).astype("float32") / 8)
        h = wf.nn.relu(wf.nn.conv2d(x, filters, 1, "SAME"))
        y = wf.nn.softmax(wf.reshape(h, [-1, 180]), name="y")
        bounds = None if int8 else {"x": [4, 6, 6, 3]}
        converter = wf.lite.Converter.from_session(session, [x], [y], bounds)
        samples = [{"x": counted(1)}] if int8 else None
        path.write_bytes(converter.convert(calibration=samples))
    return path


def counted(num_images: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the programs' input, float32 of shape (num_images, 6, 6, 3)."""
    values = np.arange(108 * num_images) % 7 - 3
    return values.reshape(num_images, 6, 6, 3).astype("float32")


def result_of(model: Path, num_images: int, portable: bool = False) -> bytes:
    """Return the bytes of the result of `counted`, optionally by portable code."""
    interpreter = Interpreter(model)
    if portable:
        use = library.load().wl_use_instruction_set
        sets = 0
        while use(interpreter._handle, sets):
            sets += 1
        use(interpreter._handle, sets - 1)
    runner = interpreter.get_signature_runner()
    return bytes(runner(x=counted(num_images))["y"].tobytes())


def check_sbom(out: Path) -> dict[str, Any]:
    """Check the required fields of a bill of materials, and return it."""
    bill: dict[str, Any] = json.loads((out / "sbom.cdx.json").read_text("utf-8"))
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.6"
    assert bill["serialNumber"].startswith("urn:uuid:") and bill["version"] == 1
    kinds = {"application", "library", "file"}
    described = bill["metadata"]["component"]
    parts = [described, *bill["components"], *bill["metadata"]["tools"]["components"]]
    assert all(part["type"] in kinds and part["name"] for part in parts)
    references = [part["bom-ref"] for part in [described, *bill["components"]]]
    assert len(references) == len(set(references))
    for row in bill["dependencies"]:
        assert {row["ref"], *row.get("dependsOn", [])} <= set(references)
    return bill


def archive_members(data: bytes) -> dict[str, bytes]:
    """Return the members of a static library by name, without its index and name table."""
    assert data.startswith(b"!<arch>\n")
    position, members, names = 8, {}, b""
    while position < len(data):
        name = data[position : position + 16].decode().rstrip()
        size = int(data[position + 48 : position + 58])
        content = data[position + 60 : position + 60 + size]
        if name.startswith("#1/"):  # of Apple: the name precedes the content
            length = int(name[3:])
            name, content = content[:length].rstrip(b"\0").decode(), content[length:]
        elif name == "//":
            names = content
        elif name[0] == "/" and name[1:].isdigit():
            start = int(name[1:])
            name = names[start : names.index(b"/", start)].decode()
        if not name.startswith(("__.SYMDEF", "//")) and name != "/":
            members[name.rstrip("/")] = content
        position += 60 + size + size % 2
    return members


def fat_slices(data: bytes) -> dict[tuple[int, int], bytes]:
    """Return the parts of a universal Mach-O file by the type and subtype of the processor."""
    magic, count = struct.unpack_from(">II", data)
    assert magic == 0xCAFEBABE
    rows = [struct.unpack_from(">IIIII", data, 8 + 20 * i) for i in range(count)]
    for _, _, offset, size, alignment in rows:
        assert offset % (1 << alignment) == 0 and offset + size <= len(data)
    return {(kind, sub): data[offset : offset + size] for kind, sub, offset, size, _ in rows}


def mach_o(data: bytes) -> tuple[int, int, int]:
    """Return the processor type, the platform and the lowest system version of an object file."""
    magic, processor, _, kind, commands = struct.unpack_from("<IIIII", data)
    assert magic == 0xFEEDFACF and kind == 1
    position = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, position)
        if command == 0x32:  # LC_BUILD_VERSION
            platform, lowest = struct.unpack_from("<II", data, position + 8)
            return processor, platform, lowest >> 16
        position += size
    raise AssertionError("no build version")
