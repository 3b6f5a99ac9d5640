"""Membership of a consumer group: heartbeats, allocation, rebalancing.

Begin with ``group_member.py``, then ``group_reader.py``.
"""
