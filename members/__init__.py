"""Members of a Raft group: roster, memberships in the log, identities, exchanged entries.

Begin with ``roster.py``, the membership as an entry of the log and a file of the store, and
``entry_exchange.py``, which verifies what peers send. It may import ``rules``, ``raft``, ``store``
and below, and sees no single process.
"""
