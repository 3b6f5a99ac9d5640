"""Cluster of several groups: rows of its home, signed documents of them, topics over groups.

docs/decisions/0083. Nothing here has a socket, a file or a clock.
"""
