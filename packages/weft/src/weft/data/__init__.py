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
)
