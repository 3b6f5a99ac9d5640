"""Files of a store: log, ConsumeQueues, Index and checkpoints, written, read and recovered.

Begin with ``log/log_writer.py`` and ``recovery/recovery.py`` for the log,
``queues/dispatch_build.py`` for what is derived from it, and ``store_view.py`` for a directory
read as messages. Which process may write which file is decided by those who use this
(docs/architecture.md). It may import ``formats`` and ``model``.
"""
