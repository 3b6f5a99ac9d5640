"""The writer process: producers' frames in, the log's only writer, retention.

Begin with ``writer.py``, then ``produce_service.py`` for the way of a frame and ``log/flusher.py``
for what makes it durable. It may import ``process`` and below, and no other process.
"""
