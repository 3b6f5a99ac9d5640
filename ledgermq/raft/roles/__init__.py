"""Roles of a member: follower, candidate and leader, with what they share.

Begin with ``node_state.py``, what all roles share, and ``follower.py``.
"""
