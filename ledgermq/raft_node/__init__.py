"""The raft process: elections, entries between members, scrub and repair, shipping of files.

Begin with ``raft_process.py``, whose worker carries out the effects of the consensus core
(``raft``) between ``peers/peer_group.py`` and ``writer_link.py``; what only a replicated log has is
``replicated.py``, and ``alone.py`` for a plain one. It may import ``process`` and below, and no
other process.
"""
