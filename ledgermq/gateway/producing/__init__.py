"""Request codes of producers: messages, transactions, replies; the way to the writer.

Begin with ``produce_codes.py``, then ``port_producer.py``.
"""
