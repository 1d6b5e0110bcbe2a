"""`python -m weft_compiler.passes`: run a pass for CPUs on programs in text form."""

import sys

from weft_compiler.passes.command import run_command
from weft_compiler.passes.pipeline import PIPELINE

sys.exit(run_command(PIPELINE, "weft_compiler.passes"))
