#!/bin/sh
# Stands for a server: it listens where another one does, and ends with its standard input.
trap '' INT
echo "listening on $WEFT_TARGET"
cat >/dev/null
echo "$@" >"$WEFT_ENDED"
