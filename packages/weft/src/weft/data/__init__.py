"""`wf.data`: input pipelines."""

from weft.data import (
    experimental as experimental,
)
from weft_io.data.dataset import (
    Dataset as Dataset,
)
from weft_io.data.files_datasets import (
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    TextLineDataset as TextLineDataset,
    TFRecordDataset as TFRecordDataset,
)
from weft_io.data.iterator import (
    Iterator as Iterator,
    get_output_classes as get_output_classes,
    get_output_shapes as get_output_shapes,
    get_output_types as get_output_types,
    make_initializable_iterator as make_initializable_iterator,
    make_one_shot_iterator as make_one_shot_iterator,
)
