"""Export to ONNX and to lite, and the run in an environment that has weft_lite alone."""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import weft as wf
from journey.base import Feeds, Journey, Serving
from journey.training import restored
from weft_lite import Interpreter, compiling

PACKAGE = Path(__file__).parents[2] / "packages" / "lite"
DEVICE = Path(__file__).with_name("device.py")


class Result(NamedTuple):
    """The result of one form of the model.

    Attributes:
      form: where and how it ran.
      size_bytes: the size of the file; 0 for the session.
      score: the score of its answers.
      milliseconds: time per question.
    """

    form: str
    size_bytes: int
    score: float
    milliseconds: float


def deploy(journey: Journey, python: Path) -> tuple[list[Result], str]:
    """Export the trained model in all forms and score each.

    Args:
      python: the interpreter of the device, which needs weft_lite.
    Returns: the results of the session, then of each file on the device; the text of `report`.
    """
    with wf.Graph().as_default():
        serving = journey.serving()
        with restored(journey) as session:
            results = [_by_session(journey, serving, session)]
            text = journey.report(serving, session)
            files = _export(journey, serving, session)
    results += [_on_device(journey, serving, python, file) for file in files]
    return results, text


def _by_session(journey: Journey, serving: Serving, session: wf.Session) -> Result:
    answers, seconds = _answers(serving, session, journey.questions())
    milliseconds = 1e3 * seconds / len(answers)
    return Result("session", 0, journey.score(answers), milliseconds)


def _answers(
    serving: Serving, session: wf.Session, questions: Sequence[Feeds]
) -> tuple[list[np.ndarray], float]:
    """Return the first output for each question, and the seconds that all took."""
    started, answers = time.perf_counter(), []
    for _, outputs in _steps(serving, session, questions):
        answers.append(outputs[next(iter(serving.outputs))])
    return answers, time.perf_counter() - started


def _steps(
    serving: Serving, session: wf.Session, questions: Sequence[Feeds]
) -> Iterator[tuple[Feeds, Feeds]]:
    """Yield all inputs and outputs of a sequence of questions, with the state between them."""
    inputs = {tensor.op.name: tensor for tensor in serving.inputs}
    state = {
        name: np.zeros(tuple(inputs[name].shape.as_list()), inputs[name].dtype.as_numpy_dtype)
        for name in serving.state
    }
    for question in questions:
        values = {**question, **state}
        outputs = session.run(dict(serving.outputs), {inputs[k]: v for k, v in values.items()})
        yield values, outputs
        state = {name: outputs[output] for name, output in serving.state.items()}


def _export(journey: Journey, serving: Serving, session: wf.Session) -> list[Path]:
    directory, name = journey.directory, journey.name
    inputs = {tensor.op.name: tensor for tensor in serving.inputs}
    wf.onnx.export(dict(serving.outputs), inputs, session, directory / f"{name}.onnx")
    samples = [values for values, _ in _steps(serving, session, journey.calibration())]
    converter = wf.lite.Converter.from_session(
        session, list(inputs.values()), list(serving.outputs.values()), dict(serving.bounds)
    )
    from_onnx = wf.lite.Converter.from_onnx(directory / f"{name}.onnx", dict(serving.bounds))
    contents = {
        name: converter.convert(),
        f"{name}-from-onnx": from_onnx.convert(samples[-1]),
        f"{name}-int8": converter.convert(calibration=samples),
    }
    files = [directory / f"{stem}.weftlite" for stem in contents]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_bytes(content)
    return files


def make_environment(directory: Path) -> Path:
    """Return the Python of an environment that has the wheel of weft_lite and nothing else.

    Args:
      directory: the parent directory of the environment, which is made only once.
    """
    environment = directory / "device"
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if python.exists():
        return python
    options = ["--no-deps", "--wheel-dir", str(directory / "wheels")]
    if compiling.system_compiler():
        options.append("--no-build-isolation")  # otherwise pip fetches ziglang to build with
    pip = [sys.executable, "-m", "pip", "--quiet"]
    call(*pip, "wheel", str(PACKAGE), *options)
    venv.create(environment, with_pip=False)
    wheel = next((directory / "wheels").glob("weftml_lite-*.whl"))
    call(*pip, "--python", str(python), "install", str(wheel))
    return python


def _on_device(journey: Journey, serving: Serving, python: Path, file: Path) -> Result:
    questions = journey.questions()
    interpreter = Interpreter(str(file))
    names = [detail["name"] for detail in interpreter.get_input_details()]
    output = interpreter.get_output_details()[0]
    first = next(iter(serving.outputs.values()))
    paths = [file.with_suffix(suffix) for suffix in (".questions", ".answers")]
    with paths[0].open("wb") as stream:
        for question in questions:
            stream.writelines(
                np.ascontiguousarray(question[name]).tobytes() for name in names if name in question
            )
    state = [f"{name}={_tensor_name(serving, out)}" for name, out in serving.state.items()]
    seconds = call(str(python), "-I", str(DEVICE), str(file), *map(str, paths), *state)
    shape = (len(questions), *(int(size) for size in output["shape"]))
    answers = np.frombuffer(paths[1].read_bytes(), first.dtype.as_numpy_dtype).reshape(shape)
    form = file.stem.removeprefix(journey.name).strip("-") or "float"
    score, size = journey.score(list(answers)), file.stat().st_size
    return Result(f"device, {form}", size, score, 1e3 * float(seconds) / len(questions))


def _tensor_name(serving: Serving, output: str) -> str:
    return serving.outputs[output].op.name


def call(*command: str) -> str:
    """Return what a command prints.

    Raises: RuntimeError: it failed; with what it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
