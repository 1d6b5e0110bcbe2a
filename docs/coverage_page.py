"""Writes coverage.md: which of TensorFlow's public callables are there, and how near they come.

    python docs/coverage_page.py

The names are those of `tests/oracle/tensorflow_names.json`, the errors those of
`tests/oracle/errors.json`. A callable has the errors of the ops that its code names, or the
functions that it calls. The suite checks that the page is current.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import weft as wf
from weft_graph.ir.op_def import lookup_op, registered_ops
from weft_graph.messages.deprecated_ops import DEPRECATED_OPS
from weft_graph.messages.function_imports import FUNCTIONAL
from weft_tensor import errors

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coverage.md"
ORACLE = ROOT / "tests" / "oracle"

EAGER = "eager only"
"""The reason of names that are out of scope."""

ABSENT = {  # the first pattern that fits a name tells why it is absent
    "data.experimental.service.*": "a service on several machines",
    "config.experimental_connect_to_*": "eager only",
    "config.experimental.ClusterDeviceFilters": "eager only",
    "train.*Shard*": "of TensorFlow 2's checkpoints",
    "train.experimental.*": "of TensorFlow 2's checkpoints",
    "train.sdca*": "helpers of TensorFlow's own Estimator",
    "train.do_quantize*": "of TensorFlow's own quantizer",
    "GradientTape": "eager only",
    "wrap_function": "of TensorFlow 2; there are `function` and `import_graph_def`",
    "*synchronous_execution": "eager only",
    "*device_policy": "eager only",
    "LMDBReader": "its format needs a library of its own",
    "load_*library": "TensorFlow's compiled ops cannot be loaded; packages add ops by entry points",
    "sysconfig.*": "of TensorFlow's compiler and headers",
    "*_VERSION": "of TensorFlow's compiler",
    "*mlir_bridge": "of TensorFlow's compiler",
    "train.CheckpointOptions": "of TensorFlow 2's checkpoints",
    "image.generate_bounding_box_proposals": "TensorFlow itself has it for its GPU kernels alone",
    "math.sobol_sample": "its table of direction numbers is SciPy's: `scipy.stats.qmc.Sobol`",
    "config.*tensor_float_32*": "of TensorFlow's GPU kernels",
    "quantization.experimental.*": "of TensorFlow's own quantizer",
    "profiler.*": "traces are `RunMetadata`'s and TensorBoard's",
    "experimental.async_*": "eager only",
    "experimental.function_executor_type": "eager only",
    "experimental.*": "of TensorFlow 2",
    "saved_model.experimental.*": "of TensorFlow 2",
    "saved_model.load_v2": "of TensorFlow 2",
    "saved_model.save": "of TensorFlow 2",
    "saved_model.Asset": "of TensorFlow 2",
    "saved_model.SaveOptions": "of TensorFlow 2",
    "test.experimental.*": "of TensorFlow 2",
    "*with_eager_op_as_function": "of TensorFlow 2",
    "data.NumpyIterator": "eager only",
    "data.experimental.ServiceOptions": "a service on several machines",
    "data.experimental.TensorArrayStructure": "elements cannot be TensorArrays",
    "data.experimental.enable_debug_mode": "eager only",
    "data.experimental.get_model_proto": "of TensorFlow's own tuning",
    "data.experimental.snapshot": "of TensorFlow 2; there is `Dataset.cache`",
    "data.experimental.distributed_save": "a service on several machines",
    "debugging.*traceback_filtering*": "errors show the program's own lines",
    "debugging.experimental.*": "of TensorFlow's own debugger",
    "check_pinned": "of TensorFlow 2",
    "conv": "of TensorFlow 2; there are `nn.conv2d` and its kin",
    "nondifferentiable_batch_function": "of TensorFlow's own server",
    "NoneTensorSpec": "of TensorFlow 2",
    "user_ops.my_fact": "an example of an op",
    "errors.raise_exception_on_not_ok_status": "of TensorFlow's C interface",
    "test.*": "of TensorFlow's own tests",
    "summary.initialize": "of TensorFlow 2's summaries",
    "summary.all_v2_summary_ops": "of TensorFlow 2's summaries",
    "*jxl": "Pillow cannot read it",
    "image.*jpeg_quality": "no way back from JPEG without loss of the graph's determinism",
    "*_proto": "needs descriptors of messages at run time",
}
"""Why names are absent; a name that no pattern fits is absent without a reason yet."""

RAW_ABSENT = {
    "TPUs, XLA and their embeddings": (
        "*TPU* *Xla* *SparseCore* *feed* Convert*Coo* GetMinibatch* StoreMinibatch* CrossReplicaSum"
        " AllToAll CollectivePermute Prelinearize* GlobalIterId WorkerHeartbeat ComputeBatchSize",
        "hardware that is not supported",
    ),
    "GPU's own": (
        "Cudnn* Nccl*",
        "cells of `contrib.cudnn_rnn` read their weights",
    ),
    "Estimator and boosted trees": (
        "*BoostedTrees* Sdca* KMC2* Kmeans* NearestNeighbors",
        "systems of their own",
    ),
    "The debugger's": ("Debug* Copy CopyHost CheckNumericsV2", "it adds them to a running step"),
    "Eager execution's": (
        "Anonymous* Delete* Dummy* *MultiDeviceIterator* CheckPinned SyncDevice DeviceIndex"
        " *Composite*",
        "they exist while a program runs, not in graphs of sessions",
    ),
    "Ops for MKL and oneDNN": (
        "Quantized*And* Quantized*With* Quantized*PerChannel Quantized*Depthwise*"
        " Requant*PerChannel",
        "that library's own rewriting makes them",
    ),
    "Collectives of TensorFlow 2": ("Collective*", "there are those of 1.15"),
    "Quantization of TensorFlow 2": ("Uniform*", "of TensorFlow 2"),
    "Sparse matrices by rows": (
        "*CSR* SparseMatrix*",
        "of TensorFlow 2; `sparse.matmul` takes SparseTensors",
    ),
    "Lists, maps and loops of TensorFlow 2": (
        "TensorList* TensorMap* EmptyTensor* For MapDefun RaggedTensorToVariantGradient",
        "loops are those of 1.x; graphs with `While` and `If` are taken",
    ),
    "Summaries of TensorFlow 2": (
        "Write*Summary *SummaryWriter CreateSummary* SummaryWriter ImportEvent",
        "`summary` has those of 1.x",
    ),
    "Random numbers of TensorFlow 2": (
        "StatelessRandom* StatelessTruncated*V2 StatelessSh* StatelessSample* StatefulStandard*",
        "those of 1.15 are there",
    ),
    "Optimizers and scatters of TensorFlow 2": (
        "ResourceApplyKeras* ResourceSparseApplyKeras* ResourceApplyAdamWithAmsgrad *ScatterNdM*",
        "of TensorFlow 2",
    ),
    "Other ops of TensorFlow 2": (
        "ApproxTopK BandedTriangularSolve BatchMatMulV3 Conv Conv2D*V2 DenseBincount SparseBincount"
        " RaggedCount* Eig Einsum Segment*V2 SparseSegment*GradV2 SparseSegmentSumGrad *CrossHashed"
        " ImageProjectiveTransformV3 IsotonicRegression SobolSample DecodePaddedRaw DecodeJxl"
        " ParseExampleV2 ParseSequenceExampleV2 FileSystem* DistributedSave Fact ToBool"
        " GenerateBoundingBox*",
        "of TensorFlow 2; most have functions over older ops",
    ),
    "Datasets of TensorFlow 2, fused and tuned ones": (
        "*Dataset* Stats* DataService* Iterator*Get* ThreadPool* Compress* Uncompress* WindowOp"
        " GetElement* GetOptions SerializeIterator DeserializeIterator *Snapshot*",
        "`data` makes datasets of those that are there",
    ),
    "What a runtime makes for itself": (
        "Send Recv FakeParam FakeQueue ImmutableConst RemoteCall Batch Unbatch* BatchFunction"
        " TemporaryVariable DestroyTemporaryVariable GetSessionHandleV2 DataFormat*",
        "weft's has its own; batches for servers are theirs",
    ),
    "Checkpoints of the first format": (
        "Save SaveSlices Restore RestoreSlice LoadAndRemap* GenerateVocabRemapping",
        "nodes of savers; `train.Saver` writes and reads the second format",
    ),
    "Messages by their descriptors, and LMDB": (
        "DecodeProto* EncodeProto LMDB*",
        "descriptors at run time; a library of its own",
    ),
    "Rare, of 1.x": ("*", "no program that was tried holds them"),
}
"""By class the patterns of TensorFlow's op types that are absent, and why; the first that fits."""

PAGE_TEXT = """\
# Coverage of TensorFlow's API

After reading this page you know which functions of TensorFlow's API weft has, and how their results
compare.

weft has {present} of {total} public callables of `tensorflow.compat.v1` {names_version},
{percent:.1f} %. Separate systems (Estimator, feature columns, Keras, TPUs, distribution strategies,
lite) and the {eager} functions for eager execution only are not counted. The latter are listed.

The numbers are the largest differences from TensorFlow {errors_version} on random inputs of the
conformance table, over the ops that a function uses. They are in units in the last place of
float32, forward and gradient: of each element for elementwise ops, else of the largest element of a
result. Ops with state, and ops that TensorFlow lacks, were not compared.

`docs/coverage_page.py` generates this page.

"""


def read(name: str) -> Any:
    """A data file of the oracle."""
    return json.loads((ORACLE / name).read_text("utf-8"))


def find(path: str) -> Any:
    """Return the object that has a name in weft, or None."""
    found: Any = wf
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def reason(path: str) -> str:
    """Why a name is absent."""
    return next((why for pattern, why in ABSENT.items() if fnmatchcase(path, pattern)), "")


# ----------------------------------------------------------------------------- errors


@cache
def ops() -> frozenset[str]:
    """All op types."""
    return frozenset(registered_ops())


def ops_of(thing: Callable[..., Any]) -> set[str]:
    """The op types that a function's code names, its own or that of functions it calls."""
    found: set[str] = set()
    seen: set[FunctionType] = set()
    waiting = [getattr(thing, "__wrapped__", thing)]
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        module = function.__module__ or ""
        if not module.startswith("weft") or module.startswith("weft_graph.ir"):
            continue
        seen.add(function)
        for code in _codes(function.__code__):
            found |= {c for c in code.co_consts if isinstance(c, str) and c in ops()}
            waiting += [function.__globals__.get(name) for name in code.co_names]
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def error(thing: Any, errors: dict[str, Any]) -> tuple[str, str]:
    """The worst errors of a function, forward and gradient; empty where none is known."""
    known = [errors[op] for op in ops_of(thing) if op in errors] if callable(thing) else []
    return _worst(known, "forward"), _worst(known, "gradient")


def _worst(known: list[dict[str, Any]], kind: str) -> str:
    values = [entry[kind]["float32"] for entry in known if "float32" in entry.get(kind, {})]
    return f"{max(values):.3g}" if values else ""


# ------------------------------------------------------------------------------- page


def text() -> str:
    """The page."""
    names, errors = read("tensorflow_names.json"), read("errors.json")
    sections, present, total, eager = [], 0, 0, 0
    for space, lines in names["names"].items():
        paths = {name: f"{space}.{name}".lstrip(".") for line in lines for name in line.split()}
        found = {name: find(path) for name, path in paths.items()}
        there = [name for name in paths if found[name] is not None]
        outside = sum(found[n] is None and reason(path) == EAGER for n, path in paths.items())
        present, total, eager = present + len(there), total + len(paths) - outside, eager + outside
        sections.append(_section(space, paths, found, errors["errors"]))
    head = PAGE_TEXT.format(
        names_version=names["version"],
        errors_version=errors["version"],
        present=present,
        total=total,
        eager=eager,
        percent=100 * present / total,
    )
    return head + "\n".join([*sections, _raw_section()])


def _raw_section() -> str:
    """Which of TensorFlow's op types are there, and the classes of others."""
    lines = (ORACLE / "raw_ops.txt").read_text("utf-8").splitlines()
    every = [line.split()[0] for line in lines]
    absent = [op for op in every if not _declared(op)]
    taken = [
        op for op in absent if op in DEPRECATED_OPS | FUNCTIONAL or op.startswith("Experimental")
    ]
    taken = [op for op in taken if op in DEPRECATED_OPS | FUNCTIONAL or _declared(op[12:])]
    rest = [op for op in absent if op not in taken]
    rows = {kind: [] for kind in RAW_ABSENT}  # type: dict[str, list[str]]
    for op in rest:
        rows[_class_of(op)].append(op)
    return "\n".join(
        [
            f"## Op types: {len(every) - len(absent)} of {len(every)} as `raw_ops`",
            "",
            f"Graphs may hold {len(taken)} more, which `import_graph_def` turns into ops of now:",
            f"{_listed(taken)}.",
            "",
            f"The other {len(rest)} by class:",
            "",
            "| class | ops | why they are absent |",
            "|---|---|---|",
            *[
                f"| {kind} | {len(ops)}: {_listed(ops)} | {RAW_ABSENT[kind][1]} |"
                for kind, ops in rows.items()
                if ops
            ],
            "",
        ]
    )


def _listed(ops: list[str]) -> str:
    return ", ".join(f"`{op}`" for op in ops)


def _declared(op: str) -> bool:
    try:
        lookup_op(op)
    except errors.NotFoundError:
        return False
    return True


def _class_of(op: str) -> str:
    return next(
        kind
        for kind, (patterns, _) in RAW_ABSENT.items()
        if any(fnmatchcase(op, pattern) for pattern in patterns.split())
    )


def _section(
    space: str, paths: dict[str, str], found: dict[str, Any], errors: dict[str, Any]
) -> str:
    there = [name for name in paths if found[name] is not None]
    measured = {name: error(found[name], errors) for name in there}
    numbers = {name: pair for name, pair in measured.items() if any(pair)}
    plain = [name for name in there if name not in numbers]
    lines = [f"## {space or 'tf'}: {len(there)} of {len(paths)}", ""]
    if numbers:
        lines += ["| | forward | gradient |", "|---|---:|---:|"]
        lines += [f"| `{n}` | {a or '–'} | {b or '–'} |" for n, (a, b) in numbers.items()]
        lines.append("")
    if plain:
        names = ", ".join(f"`{name}`" for name in plain)
        lines += [f"Available, without a measured difference: {names}.", ""]
    absent = [name for name in paths if found[name] is None]
    if absent:
        lines += ["| Missing | Reason |", "|---|---|"]
        lines += [f"| `{name}` | {reason(paths[name]) or 'not there yet'} |" for name in absent]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
