"""Measurement of the worst error of each op against TensorFlow, on random inputs."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import ml_dtypes
import numpy as np
import tensorflow.compat.v1 as tf
from weft_testing.cases import Array, Case, load_cases
from weft_testing.differentiate import random_like, vector_jacobian
from weft_testing.evaluate import evaluate

import weft as wf
from weft_autodiff.registry import gradient_of, not_differentiable
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes

FILE = Path(__file__).with_name("errors.json")
ROUNDS = 3
LOUD = 64
"""Error in units in the last place from which an op deserves a look."""
APART = {
    *("AccumulateNV2", "PlaceholderWithDefault"),  # TensorFlow rewrites or binds them
    *("Svd", "SelfAdjointEigV2", "Qr"),  # signs are free
    *("MaxPoolGrad", "MaxPoolGradGrad", "MaxPool3DGrad", "MaxPool3DGradGrad"),  # inputs follow
    *("SerializeTensor", "TensorSummary", "HistogramSummary", "StringFormat"),  # other bytes
    *("SerializeSparse", "SerializeManySparse", "DecodeJSONExample", "EncodePng"),  # so too
    *("DecodeJpeg", "DecodeAndCropJpeg", "RandomIndexShuffle"),  # docs/differences.md
    *("FusedBatchNormV3", "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"),
}
"""Ops that are the same by name and not by every output or input."""

THERE = (
    *("*-ends *", "*-far *", "Zeta-limits *", "AddN-large bfloat16 *", "Round-int *"),
    *("QuantizeV2-saturates *", "SparseAdd* int64 *", "SparseAddGrad*"),
    *("DecodePng-of jpeg *", "DecodeImage-jpeg *", "DepthwiseConv2dNative*-dilated *"),
    *("Erfinv *", "QuantizedA* *", "QuantizeDownAndShrinkRange *", "FusedBatchNorm-* gradient"),
    *("CTC* float64 *", "CropAndResizeGradImage-* float64 *", "Resize*Grad-* float64 *"),
    "SoftmaxCrossEntropyWithLogits* gradient",
    "Matrix*Diag*V2-* gradient",
    *(
        f"{op}* complex64 gradient"
        for op in (
            *("Cumprod", "EuclideanNorm", "LogMatrixDeterminant", "MatrixDeterminant", "Sign"),
            *("MatrixSolveLs", "MatrixSquareRoot", "MulNoNan", "SegmentProd", "SquaredDifference"),
            *("TridiagonalSolve", "UnsortedSegmentProd", "Xdivy", "Xlog1py", "Xlogy"),
        )
    ),
)
"""Cases, types and results that differ because TensorFlow's are wrong or computed in float32;
docs/differences.md has a row for each that programs may notice."""

RENAMED = {"squeeze_dims": "axis"}
"""Attributes that TensorFlow's functions call otherwise."""

Worst = dict[str, dict[str, Any]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="ops; all if none is given")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="random inputs of each case")
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)  # of the process that measures
    parser.add_argument("--verbose", action="store_true", help="say what was not compared, and why")
    return parser.parse_args()


# ---------------------------------------------------------------------------- on weft


class Sample:
    """A case on random inputs: weft's node and its feeds."""

    def __init__(self, case: Case, dtype: str, rng: np.random.Generator, first: bool) -> None:
        constant = iter(case.is_constant())
        self.case, self.point = case, {}
        self.flat: list[Output] = []

        def place(array: Array) -> Output:
            fixed = next(constant)
            array = array if fixed or first else _mixed(rng, array)
            value = constant_of(array.copy()) if fixed else _feed(array)
            if not fixed:
                self.point[value] = array
            prepare = case.prepare.get(len(self.flat))
            self.flat.append(value)
            return value if prepare is None else prepare(value)

        arguments = [
            [place(a) for a in x] if isinstance(x, list) else place(x) for x in case.arrays(dtype)
        ]
        attrs = dict(case.attrs)
        if dtype and case.type_attr in case.op_def.attrs:
            attrs[case.type_attr] = dtypes.as_dtype(dtype)
        self.node: Node = create(case.op, arguments, attrs)
        values = evaluate([*self.node.outputs, *self.node.inputs], self.point)
        count = len(self.node.outputs)
        self.results, self.inputs = values[:count], [np.asarray(v) for v in values[count:]]

    def gradients(self, seeds: list[Array]) -> list[Array | None]:
        """By the node's floating inputs, where its outputs are given gradients."""
        ys = [y for y in self.node.outputs if _inexact(y.dtype)]
        xs = [x for x in self.node.inputs if _inexact(x.dtype)]
        fed = [_feed(seed) for seed in seeds]
        grads = vector_jacobian(ys, fed, xs)
        point = dict(zip(self.node.inputs, self.inputs, strict=True))
        point |= dict(zip(fed, seeds, strict=True))
        return [None if g is None else evaluate(g, point) for g in grads]


def _inexact(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex)


def _feed(array: Array) -> Output:
    element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    return out("TestInput", (), {"dtype": element, "shape": array.shape})


def _mixed(rng: np.random.Generator, array: Array) -> Array:
    """Return other values of the same domain: shuffled elements, and values between them."""
    if (array.ndim == 2 and array.shape[0] == array.shape[1]) or array.size < 2:
        return array  # perhaps a matrix of a kind that this would destroy
    if array.dtype.kind not in "cOb" and bool(np.all(array[..., 1:] >= array[..., :-1])):
        return array  # sorted, as many an op requires
    moved = rng.permuted(array.reshape(-1)).reshape(array.shape)
    if array.dtype.kind not in "fc":
        return moved
    other = rng.permuted(array.reshape(-1)).reshape(array.shape)
    same_side = np.sign(moved.real) == np.sign(other.real)
    part = rng.uniform(size=array.shape).astype(array.real.dtype)
    return np.where(same_side, moved * part + other * (1 - part), moved).astype(array.dtype)


# ---------------------------------------------------------------------- on TensorFlow


def reference(sample: Sample, seeds: list[Array]) -> tuple[list[Any], list[Any]]:
    """TensorFlow's outputs and gradients for the same inputs.

    Raises: LookupError: TensorFlow has no such op, or not as a function of tensors.
    """
    call = getattr(tf.raw_ops, sample.node.type, None)
    apart = sample.node.type in APART or sample.node.type.startswith("Stateless")
    if call is None or apart:
        raise LookupError("TensorFlow has no such op, or not the same")
    with tf.Graph().as_default(), tf.Session() as session:
        fed = [tf.placeholder(_type(s.dtype), v.shape) for s, v in _paired(sample)]
        waiting = list(fed)
        given: dict[str, Any] = {}
        names = list(inspect.signature(call).parameters)
        for position, arg in enumerate(sample.node.op_def.inputs):
            if arg.is_ref:
                raise LookupError("it takes references")
            count = _count(sample.node, arg)
            name = arg.name if arg.name in names else names[position]
            given[name] = waiting[:count] if arg.is_list else waiting[0]
            del waiting[: count if arg.is_list else 1]
        given |= dict(_attrs(sample.node, names))
        found = call(**given)
        if isinstance(found, tf.Operation):
            raise LookupError("it has no results")
        outputs = _outputs(found)
        feeds = dict(zip(fed, sample.inputs, strict=True))
        ys = [y for y in outputs if y.dtype.is_floating or y.dtype.is_complex]
        xs = [x for x in fed if x.dtype.is_floating or x.dtype.is_complex]
        grads: list[Any] = []
        if seeds:
            grads = tf.gradients(ys, xs, [tf.constant(seed) for seed in seeds])
            grads = [None if g is None else tf.convert_to_tensor(g) for g in grads]
        asked = [g for g in grads if g is not None]
        values = session.run([*outputs, *asked], feeds)
    results, known = values[: len(outputs)], iter(values[len(outputs) :])
    # a string alone would lose its last NULs as an array of NumPy's strings
    results = [np.array(v, object) if isinstance(v, bytes) else v for v in results]
    return results, [None if g is None else next(known) for g in grads]


def reference_or_forward(
    sample: Sample, seeds: list[Array], verbose: bool
) -> tuple[list[Any], list[Any]]:
    """The same; outputs alone where TensorFlow cannot compute the gradients.

    Raises: LookupError, Exception: it has no outputs either.
    """
    try:
        return reference(sample, seeds)
    except Exception as why:  # because TensorFlow's kernels fail in all kinds of ways
        if not seeds:
            raise
        results, _ = reference(sample, [])
        if verbose:
            print(f"{sample.case.name} gradient: {type(why).__name__}: {str(why)[:200]!r}")
        return results, [None for x in sample.node.inputs if _inexact(x.dtype)]


def _paired(sample: Sample) -> Iterator[tuple[Output, Array]]:
    return zip(sample.node.inputs, sample.inputs, strict=True)


def _type(dtype: Any) -> Any:
    return getattr(tf, dtype.base_dtype.name)


def _count(node: Node, arg: Any) -> int:
    if arg.number_attr is not None:
        return int(node.attrs[arg.number_attr])
    return len(node.attrs[arg.list_attr]) if arg.list_attr is not None else 1


def _attrs(node: Node, taken: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, attr in node.op_def.attrs.items():
        called = name if name in taken else RENAMED.get(name)
        if called not in taken or name not in node.attrs:
            continue
        value = node.attrs[name]
        if attr.type == "type":
            value = getattr(tf, value.name)
        elif attr.type == "list(type)":
            value = [getattr(tf, each.name) for each in value]
        elif attr.type.startswith("list") or (attr.type == "shape" and value is not None):
            value = list(value)
        yield called, value


def _outputs(found: Any) -> list[Any]:
    if isinstance(found, tf.Tensor):
        return [found]
    flat: list[Any] = []
    for each in found:
        flat.extend([each] if isinstance(each, tf.Tensor) else each)
    return flat


# ----------------------------------------------------------------------------- errors


def units(got: Array, want: Array, elementwise: bool) -> float:
    """The largest difference in units in the last place; infinite where one is NaN alone."""
    if got.shape != want.shape:
        return float("inf")
    if got.dtype.kind in "OSU" or want.dtype.kind in "OSU" or got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else float("inf")
    info = ml_dtypes.finfo(got.real.dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.abs(b)
        if not elementwise:
            size = np.full(b.shape, np.max(np.where(np.isfinite(b), size, 0), initial=0))
        size = np.maximum(size, tiny)
        distance = np.where(same, 0, np.abs(a - b) / (2.0 ** np.floor(np.log2(size)) * eps))
    return float(np.max(np.nan_to_num(distance, nan=np.inf), initial=0))


def measure(case: Case, dtype: str, round_: int, worst: Worst, verbose: bool = False) -> None:
    """Compare one sample, and store errors that are larger than before.

    Raises: LookupError, Exception: it cannot be compared.
    """
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{dtype}/{round_}".encode()))
    with wf.Graph().as_default():
        sample = Sample(case, dtype, rng, first=not round_)
        ys = [y for y in sample.node.outputs if _inexact(y.dtype)]
        gradient = case.grad is not False and dtype in ("float32", "float64", "complex64")
        seeds: list[Array] = []
        grads: list[Any] = []
        if gradient and ys and _is_differentiable(sample.node):
            pairs = zip(sample.node.outputs, sample.results, strict=True)
            seeds = [random_like(rng, np.asarray(v)) for y, v in pairs if _inexact(y.dtype)]
            grads = sample.gradients(seeds)
        results, wanted = reference_or_forward(sample, seeds, verbose)
    elementwise = sample.node.traits.elementwise
    pairs = [("forward", g, w) for g, w in zip(sample.results, results, strict=True)]
    both = zip(grads, wanted, strict=True)
    pairs += [("gradient", g, w) for g, w in both if g is not None and w is not None]
    for kind, got, want in pairs:
        if any(fnmatchcase(f"{case.name} {dtype} {kind}", pattern) for pattern in THERE):
            continue
        error = units(np.asarray(got), np.asarray(want), bool(elementwise) and kind == "forward")
        entry = worst.setdefault(case.op, {}).setdefault(kind, {})
        element = np.asarray(got).dtype.name if np.asarray(got).dtype.kind != "O" else "string"
        if error > LOUD and verbose:
            print(f"{case.name} {dtype} {kind}: {error:.3g} units")
        if error >= entry.get(element, -1):
            entry[element] = float(f"{error:.3g}")


def _is_differentiable(node: Node) -> bool:
    return gradient_of(node).function is not not_differentiable


def main() -> int:
    """Measure, and write the file."""
    arguments = parse()
    warnings.simplefilter("ignore")
    chosen = [
        (case, dtype)
        for cases in load_cases().values()
        for case in cases
        for dtype in case.dtypes
        if (not arguments.ops or case.op in arguments.ops) and not case.op_def.traits.random
    ]
    if arguments.start is not None:
        tf.disable_v2_behavior()
        measure_from(arguments.start, chosen, arguments)
        return 0
    before = json.loads(FILE.read_text("utf-8"))["errors"] if arguments.ops else {}
    worst: Worst = {op: entry for op, entry in before.items() if op not in arguments.ops}
    start = 0
    while start < len(chosen):
        start = 1 + gather(start, worst)
        if start < len(chosen):  # the process ended: a failed check inside TensorFlow
            case, dtype = chosen[start - 1]
            print(f"{case.name} {dtype}: TensorFlow ends the process")
    write(worst)
    return 0


def gather(start: int, worst: Worst) -> int:
    """Measure in a new process, starting at one op; return the last op that it began."""
    command = [sys.executable, *sys.argv, "--start", str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if not line.startswith("{"):
                print(line, end="")
                continue
            entry = json.loads(line)
            start = entry["began"]
            for op, kind, element, error in entry["errors"]:
                known = worst.setdefault(op, {}).setdefault(kind, {})
                known[element] = max(error, known.get(element, error))
    return start


def measure_from(start: int, chosen: list[tuple[Case, str]], arguments: argparse.Namespace) -> None:
    """Measure the chosen cases from an index on; print the errors so far before each case."""
    worst: Worst = {}
    for index in range(start, len(chosen) + 1):
        found = [
            (op, kind, element, error)
            for op, entry in worst.items()
            for kind, known in entry.items()
            for element, error in known.items()
        ]
        print(json.dumps({"began": index, "errors": found}), flush=True)
        worst.clear()
        if index < len(chosen):
            case, dtype = chosen[index]
            try:
                for round_ in range(arguments.rounds):
                    measure(case, dtype, round_, worst, arguments.verbose)
            except Exception as why:  # because what cannot be compared there is said, and no more
                if arguments.verbose:
                    print(f"{case.name} {dtype}: {type(why).__name__}: {str(why)[:200]!r}")


def write(worst: Worst) -> None:
    """A line per op."""
    lines = [f"{json.dumps(op)}: {json.dumps(worst[op], sort_keys=True)}" for op in sorted(worst)]
    body = ",\n".join(lines)
    FILE.write_text(f'{{"version": "{tf.__version__}",\n"errors": {{\n{body}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
