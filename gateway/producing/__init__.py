"""Request codes of producers: messages, transactions, replies; the way to the writer.

Begin with ``produce_codes.py``, then ``writer_link.py``.
"""
