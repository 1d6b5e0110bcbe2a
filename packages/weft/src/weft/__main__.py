"""`python -m weft`: the `weft` command."""

import sys

from weft._commands import main

sys.exit(main())
