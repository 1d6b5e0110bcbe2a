"""Optimizers, one module per family."""

from weft_autodiff.optimizers.adadelta import *
from weft_autodiff.optimizers.adagrad import *
from weft_autodiff.optimizers.adam import *
from weft_autodiff.optimizers.ftrl import *
from weft_autodiff.optimizers.gradient_descent import *
from weft_autodiff.optimizers.momentum import *
from weft_autodiff.optimizers.optimizer import *
from weft_autodiff.optimizers.rmsprop import *
