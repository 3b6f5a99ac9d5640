"""The sink: rows of Spark as batches of staged messages."""
