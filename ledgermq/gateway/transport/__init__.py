"""Connections of the port: sockets, TLS, frames, links between port and broker processes.

Begin with ``remoting_sockets.py``; ``far_sockets.py`` beside ``port.py`` has the connections of
port processes.
"""
