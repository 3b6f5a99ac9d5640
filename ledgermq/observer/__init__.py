"""The observer process: health and metrics over HTTP; it reads, and changes nothing.

Begin with ``service.py``.
"""
