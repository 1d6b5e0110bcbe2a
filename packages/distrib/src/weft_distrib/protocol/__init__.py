"""Control messages, and the services that carry them."""

import os

# gRPC reads this when it is imported. It tells on stderr what errors tell as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
