#!/bin/sh
# The `weft` command of the interpreter that runs the tests.
exec "$WEFT_PYTHON" -m weft "$@"
