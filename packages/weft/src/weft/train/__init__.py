"""`wf.train`: optimizers, savers, hooks and other training tools."""

import typing as _typing

from weft_autodiff.optimizers.adadelta import *
from weft_autodiff.optimizers.adagrad import *
from weft_autodiff.optimizers.adam import *
from weft_autodiff.optimizers.ftrl import *
from weft_autodiff.optimizers.gradient_descent import *
from weft_autodiff.optimizers.learning_rate_decay import *
from weft_autodiff.optimizers.momentum import *
from weft_autodiff.optimizers.moving_averages import *
from weft_autodiff.optimizers.optimizer import *
from weft_autodiff.optimizers.rmsprop import *
from weft_autodiff.optimizers.training_util import *
from weft_io.checkpoint import reader as _reader
from weft_io.checkpoint.state import *
from weft_io.coordination.coordinator import *
from weft_io.coordination.queue_runner import *
from weft_io.input.batching import *
from weft_io.input.bucketing import *
from weft_io.input.pipeline import *
from weft_io.meta_graphs.export import *
from weft_io.meta_graphs.graph_io import *
from weft_io.saving.bundle_saver_builder import *
from weft_io.saving.meta_graph import *
from weft_io.saving.saver import *
from weft_io.saving.warm_start import *
from weft_io.summary.reading import *
from weft_io.training.timers import *

NewCheckpointReader = _reader.CheckpointReader

if _typing.TYPE_CHECKING:
    from weft._train_cluster import *
    from weft._train_late import *
    from weft._train_messages import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__, "weft._train_messages", "weft._train_late", "weft._train_cluster"
    )
