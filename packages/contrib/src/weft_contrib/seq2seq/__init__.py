"""`tf.contrib.seq2seq`: dynamic decoding, with attention and beam search."""

from weft_contrib.seq2seq.attention import *
from weft_contrib.seq2seq.basic import *
from weft_contrib.seq2seq.beam import *
from weft_contrib.seq2seq.decoding import *
from weft_contrib.seq2seq.helpers import *
from weft_contrib.seq2seq.loss import *
