"""Connected clients of RocketMQ: the table of them, their groups, requests to them.

Begin with ``client_table.py``.
"""
