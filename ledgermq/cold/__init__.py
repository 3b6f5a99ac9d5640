"""The process that reads sealed pieces for the broker and the port processes (``cold.place``).

It owns a cache on the disk, and writes nothing else. Nobody waits for it but who pulls messages
that the log has no more.
"""
