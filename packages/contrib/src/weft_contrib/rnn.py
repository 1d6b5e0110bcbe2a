"""`tf.contrib.rnn`: recurrent cells and networks."""

from __future__ import annotations

__all__ = [
    "AttentionCellWrapper",
    "BasicLSTMCell",
    "BasicRNNCell",
    "Conv1DLSTMCell",
    "Conv2DLSTMCell",
    "Conv3DLSTMCell",
    "ConvLSTMCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "EmbeddingWrapper",
    "GRUBlockCell",
    "GRUBlockCellV2",
    "GRUCell",
    "HighwayWrapper",
    "InputProjectionWrapper",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LSTMBlockWrapper",
    "LSTMCell",
    "LSTMStateTuple",
    "LayerNormBasicLSTMCell",
    "LayerRNNCell",
    "MultiRNNCell",
    "NASCell",
    "OutputProjectionWrapper",
    "RNNCell",
    "ResidualWrapper",
    "UGRNNCell",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "transpose_batch_time",
]

from weft_contrib.rnn_block_cells import (
    GRUBlockCell,
    GRUBlockCellV2,
    LSTMBlockCell,
    LSTMBlockFusedCell,
    LSTMBlockWrapper,
)
from weft_contrib.rnn_cells import (
    EmbeddingWrapper,
    InputProjectionWrapper,
    LayerNormBasicLSTMCell,
    OutputProjectionWrapper,
)
from weft_contrib.rnn_more_cells import (
    AttentionCellWrapper,
    Conv1DLSTMCell,
    Conv2DLSTMCell,
    Conv3DLSTMCell,
    ConvLSTMCell,
    HighwayWrapper,
    NASCell,
    UGRNNCell,
)
from weft_contrib.rnn_stacks import stack_bidirectional_dynamic_rnn, stack_bidirectional_rnn
from weft_graph.rnn.cell.base import LayerRNNCell, RNNCell
from weft_graph.rnn.cell.basic import BasicRNNCell, GRUCell
from weft_graph.rnn.cell.lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from weft_graph.rnn.cell.multi import MultiRNNCell
from weft_graph.rnn.cell.steps import transpose_batch_time
from weft_graph.rnn.cell.wrappers import DeviceWrapper, DropoutWrapper, ResidualWrapper
from weft_graph.rnn.static import static_bidirectional_rnn, static_rnn, static_state_saving_rnn
