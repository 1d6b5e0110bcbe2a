"""The public `nn.rnn_cell` namespace: the cells of recurrent networks."""

from __future__ import annotations

from weft_graph.rnn.cell.base import RNNCell
from weft_graph.rnn.cell.basic import BasicRNNCell, GRUCell
from weft_graph.rnn.cell.lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from weft_graph.rnn.cell.multi import MultiRNNCell
from weft_graph.rnn.cell.wrappers import DeviceWrapper, DropoutWrapper, ResidualWrapper

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
]
