"""The writer's log: opened, appended under the put lock, flushed.

Begin with ``log_opening.py``, then ``put_batch.py`` and ``flusher.py``.
"""
