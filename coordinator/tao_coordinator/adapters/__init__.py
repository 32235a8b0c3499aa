"""One foreign protocol per module: bytes of others in, core events out. No sockets, no clock."""
