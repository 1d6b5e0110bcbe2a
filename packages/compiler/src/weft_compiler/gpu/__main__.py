"""`python -m weft_compiler.gpu`: run a pass for GPUs on programs in text form."""

import sys

from weft_compiler.gpu.pipeline import PIPELINE
from weft_compiler.passes.command import run_command

sys.exit(run_command(PIPELINE, "weft_compiler.gpu"))
