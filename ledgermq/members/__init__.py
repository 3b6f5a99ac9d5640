"""Members of a Raft group: roster, addresses, identities, and what damage each has.

Begin with ``roster.py``, the membership as an entry of the log and a file of the store. It may
import ``rules``, ``raft``, ``store`` and below, and sees no single process.
"""
