"""ConsumeQueues and the dispatch that builds them, with their ends and checkpoints.

Begin with ``dispatch_build.py``, then ``queue_reader.py``.
"""
