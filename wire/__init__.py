"""Protocols between machines and clients, without I/O."""
