"""Keys: CURVE keys of clients and peers, the keys of sealed secrets, first access."""
