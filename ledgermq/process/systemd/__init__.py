"""systemd: sockets that it holds, its journal, its programs.

Each module has one way to systemd.
"""
