"""`wf.image`: image files, resizing, colors and orientation."""

from weft import _lazy
from weft_graph.ops.random import random_crop as random_crop
from weft_graph.ops.space_to_batch import extract_image_patches as extract_image_patches
from weft_io.image import orientation as _orientation
from weft_io.image.color import *
from weft_io.image.cropping import *
from weft_io.image.decoding import *
from weft_io.image.orientation import *
from weft_io.image.quality import *
from weft_io.image.resizing import *
from weft_io.ops.image_boxes import *
from weft_io.ops.image_codecs import *
from weft_io.ops.image_color import *
from weft_io.ops.image_resizing import *
from weft_io.ops.image_suppression import *

transpose_image = _orientation.transpose

_lazy.hint(__name__)
