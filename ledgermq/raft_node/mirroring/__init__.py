"""Mirror of another site's group: its committed log comes here as from a leader.

Begin with ``mirror_peers.py``.
"""
