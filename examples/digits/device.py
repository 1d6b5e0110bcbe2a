"""What runs on a device: recognizes images with weft_lite and the standard library alone.

python device.py MODEL IMAGES LABELS   prints the share that is recognized
"""

from __future__ import annotations

import array
import sys
from pathlib import Path

from weft_lite import Interpreter

PIXELS = 64


def main(model: str, images: str, labels: str) -> None:
    """Recognize all images, one at a time."""
    interpreter = Interpreter(model)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], [1, 8, 8, 1])
    run = interpreter.get_signature_runner()
    pixels, wanted = memoryview(Path(images).read_bytes()), Path(labels).read_bytes()
    right = 0
    for i, label in enumerate(wanted):
        image = pixels[4 * PIXELS * i : 4 * PIXELS * (i + 1)].cast("f", (1, 8, 8, 1))
        (scores,) = run(images=image).values()
        found = array.array("f", memoryview(scores).cast("B").cast("f"))
        right += found.index(max(found)) == label
    print(f"{right / len(wanted):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
