"""Connections of the port: sockets, TLS, frames, links between port and broker processes."""
