"""Record of a node over a minute, in one archive (``ledgermq doctor --record``).

Begin with ``recorder.py``: what is looked at, and when. It may import what the doctor may.
"""
