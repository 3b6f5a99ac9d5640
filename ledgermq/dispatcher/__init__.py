"""The dispatcher process: ConsumeQueues and Index, built from what is committed.

Begin with ``dispatcher.py``; how they are built is ``store/queues/dispatch_build.py``. It may
import ``process`` and below, and no other process.
"""
