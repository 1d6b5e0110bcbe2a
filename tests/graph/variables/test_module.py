"""Objects with variables and other modules as attributes."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft import errors


class Affine(wf.Module):
    def __init__(self, width: int, name: str | None = None) -> None:
        super().__init__(name)
        with self.name_scope:
            self.w = wf.Variable(wf.ones([width, 1]), name="w")
            self.steps = wf.Variable(0.0, trainable=False, name="steps")

    @wf.Module.with_name_scope
    def apply(self, x: Any) -> Any:
        return wf.matmul(x, self.w, name="product")


class TwoOfThem(wf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [Affine(2), {"b": Affine(3), "a": Affine(4, "other")}]
        self.again = self.parts[0]
        self.itself = self


def test_variables_and_submodules() -> None:
    with wf.Graph().as_default():
        two = TwoOfThem()
        assert two.name == "two_of_them"
        assert [m.name for m in two.submodules] == ["affine", "other", "affine"]
        names = [v.op.name for v in two.variables]
        wanted = [
            "affine/steps",
            "affine/w",
            "other/steps",
            "other/w",
            "affine_1/steps",
            "affine_1/w",
        ]
        assert names == wanted
        assert [v.op.name for v in two.trainable_variables] == wanted[1::2]
        assert [v.op.name for v in two.non_trainable_variables] == wanted[::2]


def test_the_name_scope_is_the_same_each_time() -> None:
    with wf.Graph().as_default():
        affine, x = Affine(2), wf.ones([1, 2])
        names = [affine.apply(x).op.name for _ in range(2)]
        assert names == ["affine/product", "affine/product_1"]
        with pytest.raises(errors.InvalidArgumentError, match="identifier"):
            wf.Module("a/b")
