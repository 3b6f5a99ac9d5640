"""Health of a node: readiness, systemd's watchdog and notices, the document of ``status``.

Begin with ``health.py``.
"""
