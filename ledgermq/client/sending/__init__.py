"""The rules of sending: encoding, frames, window, acknowledgements, transactions.

Begin with ``send_pipeline.py``.
"""
