"""Constants, identities, shapes, and putting tensors together, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import (
    BOOL,
    FLOATS,
    NUMBERS,
    STRING,
    UNTYPED,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
)

ANY = (*NUMBERS, *BOOL)
X = 3 * complex_normal(2, 3, 4)
V = 3 * complex_normal(4)
INTS = np.zeros(0, np.int32)


def text(*shape: int) -> Array:
    """Strings that differ, of various lengths, one with a zero byte at its end."""
    count = int(np.prod(shape, dtype=np.int64))
    result = np.empty(count, object)
    result[:] = [b"s%d" % i + b"\0" * (i % 2) for i in range(count)]
    return result.reshape(shape)


def each(
    op: str,
    x: Any,
    rest: Sequence[Any] = (),
    attrs: dict[str, Any] | None = None,
    expected: Callable[..., Any] | None = None,
    **options: Any,
) -> list[Case]:
    """A case with numbers, and one with strings of the same shapes."""
    strings = [text(*a.shape) for a in x] if isinstance(x, list) else text(*np.shape(x))
    label = options.pop("label", "")
    return [
        Case(op, [x, *rest], attrs, expected, dtypes=ANY, label=label, **options),
        Case(
            op,
            [strings, *rest],
            attrs,
            expected,
            dtypes=STRING,
            label=f"{label}strings",
            **(options | {"grad": False}),
        ),
    ]


def _same(x: Array) -> Array:
    return x


def _placed(values: Any) -> Any:
    return Raw(np.array(values, np.int32))


def _identity() -> list[Case]:
    cases: list[Case] = []
    for op in ("Identity", "Snapshot"):
        cases += each(op, X, expected=_same)
    for op in ("StopGradient", "GuaranteeConst"):
        cases += each(op, X, expected=_same, grad=False)
    cases += [
        Case("Identity", [np.array(2.5)], expected=_same, dtypes=ANY, label="scalar"),
        Case("PreventGradient", [X], expected=_same, dtypes=ANY, grad=False),
        Case("CheckNumerics", [X.real], {"message": "x"}, _same, dtypes=FLOATS),
        Case("EnsureShape", [X], {"shape": (None, 3, None)}, _same, dtypes=ANY),
        Case(
            "PlaceholderWithDefault",
            [X],
            {"shape": (None, 3, None)},
            _same,
            dtypes=ANY,
            type_attr="dtype",
            static=False,
        ),
        Case(
            "IdentityN",
            [[Raw(X), Raw(normal(3)), Raw(text(2), "string")]],
            {},
            lambda xs: tuple(xs),
            dtypes=UNTYPED,
            grad=False,
        ),
        Case(
            "IdentityN",
            [[Raw(X.real)]],
            {},
            lambda xs: xs[0],
            dtypes=UNTYPED,
            grad=False,
            label="1",
        ),
        Case(
            "Const",
            [],
            {"value": X, "dtype": "complex128"},
            lambda: X,
            dtypes=UNTYPED,
            grad=False,
        ),
    ]
    return cases


def _shapes() -> list[Case]:
    cases: list[Case] = []
    for kind in ("int32", "int64"):
        attrs = {"out_type": kind}
        cases += each("Shape", X, (), attrs, lambda x: np.array(x.shape), label=kind, static=True)
        cases += each("Size", X, (), attrs, lambda x: np.array(x.size), label=kind)
        cases += each(
            "ShapeN",
            [X, V],
            (),
            attrs,
            lambda xs: tuple(np.array(x.shape) for x in xs),
            label=kind,
        )
    cases += each("ShapeN", [X], (), {}, lambda xs: np.array(xs[0].shape), label="one")
    cases += each("Shape", np.array(1.0), (), {}, lambda x: INTS, label="scalar")
    cases += each("Rank", X, expected=lambda x: np.array(x.ndim))
    for shape in ([4, 6], [2, -1], [-1], [1, 24, 1], [0, 1]):
        x = X if 0 not in shape else X[:0]
        cases += each(
            "Reshape",
            x,
            [_placed(shape)],
            {},
            lambda x, shape: x.reshape(shape),
            label=str(shape),
        )
    cases += each(
        "Reshape", X[:1, :1, :1], [Raw(INTS)], {}, lambda x, s: x.reshape(()), label="scalar"
    )
    for axis in (0, 1, 3, -1, -4):
        cases += each(
            "ExpandDims",
            X,
            [Raw(axis)],
            {},
            lambda x, axis: np.expand_dims(x, int(axis)),
            label=str(axis),
        )
    cases += each("ExpandDims", np.array(1.5), [Raw(0)], {}, lambda x, a: x.reshape(1), label="0-d")
    ones = X.reshape(2, 1, 12, 1)
    for axes in ((), (1,), (-1,), (1, 3), (-1, 1)):
        cases += each(
            "Squeeze",
            ones,
            (),
            {"squeeze_dims": axes},
            lambda x, axes=axes: np.squeeze(x, axes or None),
            label=str(axes),
        )
    return cases


def _filled() -> list[Case]:
    cases: list[Case] = []
    for shape in ([2, 3], [0, 2], [], [40, 50]):
        cases += [
            Case(
                "Fill",
                [Raw(np.array(shape, np.int32)), np.array(2.5 + 1j)],
                {},
                lambda dims, value: np.full(dims, value),
                dtypes=ANY,
                label=str(shape),
            ),
            Case(
                "Fill",
                [Raw(np.array(shape, np.int64)), text(1)[0]],
                {},
                lambda dims, value: np.full(dims, value, object),
                dtypes=STRING,
                label=f"{shape}strings",
            ),
        ]
    for x in (X, np.array(1.5), normal(50, 60)):
        label = str(x.shape)
        cases.append(Case("ZerosLike", [x], {}, np.zeros_like, dtypes=ANY, label=label))
        cases.append(Case("OnesLike", [x], {}, np.ones_like, dtypes=ANY, label=label))
    cases.append(
        Case(
            "ZerosLike",
            [text(2, 3)],
            {},
            lambda x: np.full(x.shape, b"", object),
            dtypes=STRING,
            label="strings",
        )
    )
    for x, shape in ((V, [3, 4]), (X[:, :1], [5, 2, 3, 4]), (X, [2, 3, 4]), (V[0], [2, 2])):
        cases += each(
            "BroadcastTo",
            np.asarray(x),
            [_placed(shape)],
            {},
            lambda x, shape: np.broadcast_to(x, shape),
            label=f"{np.shape(x)}to{shape}",
        )
    for a, b in (([2, 1, 3], [4, 1]), ([], [2]), ([1], [1])):
        pair = [np.array(a, np.int32), np.array(b, np.int32)]
        cases.append(
            Case(
                "BroadcastArgs",
                pair,
                {},
                lambda a, b: np.array(np.broadcast_shapes(tuple(a), tuple(b))),
                dtypes=("int32", "int64"),
                label=f"{a}{b}",
            )
        )
        cases.append(
            Case(
                "BroadcastGradientArgs",
                pair,
                {},
                lambda a, b: (_summed(a, b), _summed(b, a)),
                dtypes=("int32", "int64"),
                label=f"{a}{b}",
                static=False,
            )
        )
    return cases


def _summed(a: Array, b: Array) -> Array:
    whole = np.broadcast_shapes(tuple(a), tuple(b))
    shape = (None,) * (len(whole) - len(a)) + tuple(a)
    return np.array([i for i, n in enumerate(shape) if n is None or (n == 1 and whole[i] != 1)])


def _joined() -> list[Case]:
    cases: list[Case] = []
    for axis in (0, 1, 2, -1):
        y = np.concatenate([X, X[:, :1]], 1) if axis == 1 else X
        cases += each(
            "ConcatV2",
            [X, y],
            [Raw(axis)],
            {},
            lambda xs, axis: np.concatenate(xs, int(axis)),
            label=str(axis),
        )
    cases += each("ConcatV2", [X], [Raw(np.int64(-2))], {}, lambda xs, axis: xs[0], label="one")
    big = 2 * complex_normal(30, 40)
    cases += each(
        "ConcatV2", [big, big], [Raw(0)], {}, lambda xs, axis: np.concatenate(xs), label="big"
    )
    cases += [
        Case(
            "Concat",
            [Raw(1), [X, X[:, :2]]],
            {},
            lambda axis, xs: np.concatenate(xs, int(axis)),
            dtypes=ANY,
        ),
        Case(
            "ConcatOffset",
            [Raw(1), [_placed([2, 3, 4]), _placed([2, 5, 4]), _placed([2, 0, 4])]],
            {},
            lambda axis, shapes: tuple(np.array([0, n, 0]) for n in (0, 3, 8)),
            dtypes=UNTYPED,
        ),
    ]
    for axis in (0, 1, 3, -1):
        cases += each(
            "Pack",
            [X, X + 1, X * 2],
            (),
            {"axis": axis},
            lambda xs, axis=axis: np.stack(xs, axis),
            label=str(axis),
        )
    cases += each("Pack", [V[0], V[1]], (), {}, np.stack, label="scalars")
    cases += each("Pack", [X], (), {}, np.stack, label="one")
    for axis in (0, 2, -1):
        cases += each(
            "Unpack",
            X,
            (),
            {"num": X.shape[axis], "axis": axis},
            lambda x, axis=axis: tuple(np.moveaxis(x, axis, 0)),
            label=str(axis),
        )
    cases += each(
        "Unpack", V, (), {"num": 4}, lambda x: tuple(x[i, ...] for i in range(4)), label="scalars"
    )
    cases += each("Unpack", V[:1], (), {"num": 1}, lambda x: x[0], label="one")
    return cases


def _cut() -> list[Case]:
    cases: list[Case] = []
    for axis, count in ((0, 2), (1, 3), (-1, 2), (2, 1)):
        cases += [
            Case(
                "Split",
                [Raw(axis), X],
                {"num_split": count},
                lambda axis, x, count=count: tuple(np.split(x, count, int(axis))),
                dtypes=ANY,
                label=f"{axis}into{count}",
            )
        ]
    cases.append(
        Case(
            "Split",
            [Raw(1), text(2, 4)],
            {"num_split": 2},
            lambda axis, x: tuple(np.split(x, 2, int(axis))),
            dtypes=STRING,
            label="strings",
        )
    )
    for sizes, axis in (([1, 3], 2), ([2, -1], -1), ([0, 2], 0), ([3], 1)):
        cases += each(
            "SplitV",
            X,
            [Raw(np.array(sizes, np.int64)), Raw(axis)],
            {"num_split": len(sizes)},
            lambda x, sizes, axis: _split_v(x, sizes, int(axis)),
            label=f"{sizes}at{axis}",
        )
    for counts in ([1, 2, 3], [2, 0, 1], [1, 1, 1]):
        cases += each(
            "Tile",
            X,
            [_placed(counts)],
            {},
            np.tile,
            label=str(counts),
        )
    cases += each("Tile", np.array(2.0), [Raw(INTS)], {}, lambda x, m: x, label="scalar")
    return cases


def _split_v(x: Array, sizes: Array, axis: int) -> tuple[Array, ...]:
    counts = [int(n) for n in sizes]
    if -1 in counts:
        counts[counts.index(-1)] = x.shape[axis] - sum(counts) - 1
    return tuple(np.split(x, np.cumsum(counts)[:-1], axis))


CASES = [*_identity(), *_shapes(), *_filled(), *_joined(), *_cut()]
