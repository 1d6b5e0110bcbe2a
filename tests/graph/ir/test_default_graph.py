"""Functions over the default graph."""

from __future__ import annotations

import pytest

import weft as wf
from weft_tensor.errors import InvalidTypeError


def test_scopes_and_collections_of_a_graph() -> None:
    with wf.Graph().as_default() as graph:
        assert graph.get_name_scope() == ""
        with wf.name_scope("a"), wf.name_scope("b"):
            assert graph.get_name_scope() == "a/b"
        wf.add_to_collection("losses", 1)
        assert "losses" in graph.collections


@pytest.mark.parametrize("seed", ["x", [1], 1.5])
def test_seeds_that_are_no_integers(seed: object) -> None:
    from weft_graph.ir.random_seed import get_seed, set_random_seed

    for function in (get_seed, set_random_seed):
        with wf.Graph().as_default(), pytest.raises(InvalidTypeError, match="an integer"):
            function(seed)  # type: ignore[operator]


def test_name_scopes_of_no_name() -> None:
    with wf.Graph().as_default(), pytest.raises(InvalidTypeError, match="must be text"):
        wf.name_scope(3)  # type: ignore[arg-type]
