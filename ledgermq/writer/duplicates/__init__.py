"""De-duplication: frames that are sent again, and unique ids that are stored already.

Begin with ``missing_records.py``.
"""
