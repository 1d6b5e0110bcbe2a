"""Late reads of fetched references on devices with separate memory.

On the host, a fetched reference is read at the end of the step. On other devices the value must be
sent to the host, so a node reads it after all other fetches and targets.
"""

from __future__ import annotations

from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph

_REASON = "fetched reference"


def read_last(step: StepGraph) -> int:
    """Read fetched references after all other fetches and targets; return their number."""
    fetches, feeds = step.fetches, set(step.feeds)
    late = [i for i, o in enumerate(fetches) if o.dtype.is_ref and o not in feeds]
    if not late:
        return 0
    predecessors = dict.fromkeys([*[output.node for output in fetches], *step.targets])
    last = step.graph.add_derived(
        fetches[late[0]].node,
        lookup_op("ControlTrigger"),  # which waits for branches that are not taken, too
        step.graph.unique_name("_end"),
        (),
        {},
        [],
        [],
    )
    step.graph.set_control_inputs(last, list(predecessors), reason=_REASON)
    for position in late:
        step.isolate_fetch(position, [last])
    step.changes[_REASON] += len(late)
    return len(late)
