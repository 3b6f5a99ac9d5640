"""Bodies by schemas: values encoded and decoded by what a subject has registered.

Begin with ``typed_bodies.py``. Needs the extra ``schemas``.
"""
