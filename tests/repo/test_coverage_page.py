"""The page of TensorFlow's names is up to date with the code and the measured errors."""

from __future__ import annotations

import pytest
from weft_testing.loading import load
from weft_testing.workspace import ROOT

page = load(ROOT / "docs" / "coverage_page.py")


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run python docs/coverage_page.py"


def test_what_is_absent_is_absent_and_tells_why() -> None:
    assert page.find("nn.relu") is not None and page.find("nn.no_such_name") is None
    assert page.reason("GradientTape") == "eager only" and not page.reason("nn.relu")


@pytest.mark.parametrize(
    ("name", "ops"), [("tanh", {"Tanh"}), ("nn.moments", {"SquaredDifference"})]
)
def test_a_function_is_known_by_its_ops(name: str, ops: set[str]) -> None:
    assert ops <= page.ops_of(page.find(name))
