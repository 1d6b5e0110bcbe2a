"""Updates of variables end differentiation: nothing flows back through them."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable
from weft_graph.ops.training import op_type, op_types

for _rule, _sparse, _resource in op_types():
    NotDifferentiable(op_type(_rule.name, _sparse, _resource))
