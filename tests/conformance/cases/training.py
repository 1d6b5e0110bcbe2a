"""Cases of the update rules: a variable and its slots before, gradients, hyperparameters.

They take references and handles rather than arrays, so `CASES` is empty and `UPDATE_CASES` are run
by tests/exec/kernels/test_training.py against the references of weft_testing.update_rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft_testing.cases import FLOATS, Case

from weft_graph.ops.training import RULES, UpdateRule, op_type, op_types

CASES: list[Case] = []


class UpdateCase:
    """One form of an update rule.

    Args:
      rule: the rule.
      sparse, resource: the form.
      attrs: attributes that change the update.
      dtypes: element types to run.
    """

    def __init__(
        self,
        rule: UpdateRule,
        sparse: bool,
        resource: bool,
        attrs: Mapping[str, bool] | None = None,
    ) -> None:
        self.rule = rule
        self.sparse = sparse
        self.resource = resource
        self.attrs = dict(attrs or {})
        self.dtypes = FLOATS
        self.name = "-".join([op_type(rule.name, sparse, resource), *self.attrs])


UPDATE_CASES = [
    *[UpdateCase(*form) for form in op_types()],
    *[
        UpdateCase(RULES[rule], sparse, resource, attrs)
        for rule, sparse, attrs in (
            ("Momentum", False, {"use_nesterov": True}),
            ("Momentum", True, {"use_nesterov": True}),
            ("Adam", False, {"use_nesterov": True}),
            ("Adagrad", False, {"update_slots": False}),
            ("Adagrad", True, {"update_slots": False}),
            ("AdagradV2", False, {"update_slots": False}),
            ("AdagradV2", True, {"update_slots": False}),
        )
        for resource in (False, True)
    ],
]
