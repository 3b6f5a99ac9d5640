"""Consumers of a group: membership, leases of queues, plans for groups and offsets.

Begin with ``enrolment.py``.
"""
