"""`wf.audio`: sounds in files."""

from weft import _lazy
from weft_io.ops.image_codecs import decode_wav as decode_wav, encode_wav as encode_wav

_lazy.hint(__name__)
