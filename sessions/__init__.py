"""Sessions of clients: sockets, identity and rights, bounds, what a node tells of itself."""
