"""Lazily loaded names of `weft.train`: training loops."""

from weft_io.saving.vocabularies import *
from weft_io.tracking.checkpoint import *
from weft_io.tracking.manager import *
from weft_io.training.checkpoint_hooks import *
from weft_io.training.hook import *
from weft_io.training.logging_hooks import *
from weft_io.training.monitored_session import *
from weft_io.training.monitored_training import *
from weft_io.training.profiler_hook import *
from weft_io.training.scaffold import *
from weft_io.training.session_creators import *
from weft_io.training.session_manager import *
from weft_io.training.step_hooks import *
from weft_io.training.summary_hooks import *
from weft_io.training.supervisor import *
from weft_io.training.train_loop import *
