"""The sink: rows of Spark as batches of staged messages.

Begin with ``spark_sink.py``.
"""
