"""Programs with loops and conditionals, and their results on TensorFlow.

`TABLE` in table.py has a row for each; the modules beside it fill it, and record.py made
expected.json.
"""

from . import (
    algorithms as algorithms,
    arrays as arrays,
    branches as branches,
    inside as inside,
    kinds as kinds,
    loops as loops,
    nested as nested,
    reported as reported,
    reported_gradients as reported_gradients,
    sparse as sparse,
    state as state,
    training as training,
)
from .table import (
    TABLE as TABLE,
    Built as Built,
    Row as Row,
    build as build,
    fed as fed,
    run as run,
)
