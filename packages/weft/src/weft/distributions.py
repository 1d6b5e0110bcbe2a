"""`wf.distributions`: probability distributions."""

from weft import _lazy
from weft_graph.distributions.bernoulli import *
from weft_graph.distributions.beta import *
from weft_graph.distributions.categorical import *
from weft_graph.distributions.dirichlet import *
from weft_graph.distributions.dirichlet_multinomial import *
from weft_graph.distributions.distribution import *
from weft_graph.distributions.exponential import *
from weft_graph.distributions.gamma import *
from weft_graph.distributions.kullback_leibler import *
from weft_graph.distributions.laplace import *
from weft_graph.distributions.multinomial import *
from weft_graph.distributions.normal import *
from weft_graph.distributions.student_t import *
from weft_graph.distributions.uniform import *

_lazy.hint(__name__)
