"""Writes `distrib.fbs`, the messages in the language of flatbuffers' own compiler."""

from pathlib import Path

import weft_distrib.protocol
from weft_distrib.protocol.messages import MESSAGES
from weft_distrib.protocol.tables import schema

if __name__ == "__main__":
    path = Path(weft_distrib.protocol.__file__).with_name("distrib.fbs")
    path.write_text(schema(MESSAGES, "weft.distrib"))
