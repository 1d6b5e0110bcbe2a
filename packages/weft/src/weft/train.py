"""`wf.train`: optimizers, savers and what goes with training."""

from __future__ import annotations

from weft_autodiff.learning_rate_decay import cosine_decay as cosine_decay
from weft_autodiff.learning_rate_decay import cosine_decay_restarts as cosine_decay_restarts
from weft_autodiff.learning_rate_decay import exponential_decay as exponential_decay
from weft_autodiff.learning_rate_decay import inverse_time_decay as inverse_time_decay
from weft_autodiff.learning_rate_decay import linear_cosine_decay as linear_cosine_decay
from weft_autodiff.learning_rate_decay import natural_exp_decay as natural_exp_decay
from weft_autodiff.learning_rate_decay import noisy_linear_cosine_decay as noisy_linear_cosine_decay
from weft_autodiff.learning_rate_decay import piecewise_constant as piecewise_constant
from weft_autodiff.learning_rate_decay import piecewise_constant_decay as piecewise_constant_decay
from weft_autodiff.learning_rate_decay import polynomial_decay as polynomial_decay
from weft_autodiff.moving_averages import ExponentialMovingAverage as ExponentialMovingAverage
from weft_autodiff.optimizers.adadelta import AdadeltaOptimizer as AdadeltaOptimizer
from weft_autodiff.optimizers.adagrad import AdagradDAOptimizer as AdagradDAOptimizer
from weft_autodiff.optimizers.adagrad import AdagradOptimizer as AdagradOptimizer
from weft_autodiff.optimizers.adagrad import ProximalAdagradOptimizer as ProximalAdagradOptimizer
from weft_autodiff.optimizers.adam import AdamOptimizer as AdamOptimizer
from weft_autodiff.optimizers.ftrl import FtrlOptimizer as FtrlOptimizer
from weft_autodiff.optimizers.gradient_descent import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from weft_autodiff.optimizers.gradient_descent import (
    ProximalGradientDescentOptimizer as ProximalGradientDescentOptimizer,
)
from weft_autodiff.optimizers.momentum import MomentumOptimizer as MomentumOptimizer
from weft_autodiff.optimizers.optimizer import Optimizer as Optimizer
from weft_autodiff.optimizers.rmsprop import RMSPropOptimizer as RMSPropOptimizer
from weft_autodiff.training_util import assert_global_step as assert_global_step
from weft_autodiff.training_util import create_global_step as create_global_step
from weft_autodiff.training_util import get_global_step as get_global_step
from weft_autodiff.training_util import get_or_create_global_step as get_or_create_global_step
from weft_autodiff.training_util import global_step as global_step
from weft_io.checkpoint.state import checkpoint_exists as checkpoint_exists
from weft_io.checkpoint.state import (
    generate_checkpoint_state_proto as generate_checkpoint_state_proto,
)
from weft_io.checkpoint.state import get_checkpoint_mtimes as get_checkpoint_mtimes
from weft_io.checkpoint.state import get_checkpoint_state as get_checkpoint_state
from weft_io.checkpoint.state import latest_checkpoint as latest_checkpoint
from weft_io.checkpoint.state import list_variables as list_variables
from weft_io.checkpoint.state import load_checkpoint as load_checkpoint
from weft_io.checkpoint.state import load_variable as load_variable
from weft_io.checkpoint.state import remove_checkpoint as remove_checkpoint
from weft_io.checkpoint.state import update_checkpoint_state as update_checkpoint_state
from weft_io.meta_graph import export_meta_graph as export_meta_graph
from weft_io.saver import Saver as Saver
