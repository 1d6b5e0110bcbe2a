"""The program on the device: runs a model with weft_lite and the standard library alone.

python device.py MODEL QUESTIONS ANSWERS [INPUT=OUTPUT...]

QUESTIONS has the values of the inputs, one question after the other, each in the order of the
model's inputs. ANSWERS receives the first output for each question. An INPUT=OUTPUT is state: the
input begins as zeros, then receives the output of the preceding question. Prints the seconds that
all invocations took.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from weft_lite import Interpreter


def main(model: str, questions: str, answers: str, *state: str) -> None:
    """Answer all questions."""
    interpreter = Interpreter(model)
    interpreter.allocate_tensors()
    sources = dict(pair.split("=") for pair in state)
    inputs = interpreter.get_input_details()
    outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}
    first = next(iter(outputs.values()))
    values: dict[str, Any] = {name: None for name in sources}
    content, start, seconds = memoryview(Path(questions).read_bytes()), 0, 0.0
    with Path(answers).open("wb") as file:
        while start < len(content):
            for detail in inputs:
                target = memoryview(interpreter.tensor(detail["index"])()).cast("B")
                name = detail["name"]
                if name in sources:
                    target[:] = bytes(len(target)) if values[name] is None else values[name]
                else:
                    target[:] = content[start : start + len(target)]
                    start += len(target)
            began = time.perf_counter()
            interpreter.invoke()
            seconds += time.perf_counter() - began
            for name, output in sources.items():
                values[name] = bytes(memoryview(interpreter.get_tensor(outputs[output]["index"])))
            file.write(bytes(memoryview(interpreter.get_tensor(first["index"]))))
    print(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
