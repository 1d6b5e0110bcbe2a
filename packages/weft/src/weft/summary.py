"""`wf.summary`: what TensorBoard shows."""

from weft_io.summary import (
    FileWriter as FileWriter,
    FileWriterCache as FileWriterCache,
    audio as audio,
    get_summary_description as get_summary_description,
    histogram as histogram,
    image as image,
    merge as merge,
    merge_all as merge_all,
    scalar as scalar,
    tensor_summary as tensor_summary,
    text as text,
)
