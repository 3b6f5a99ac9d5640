"""The understudy: a process that follows a running RocketMQ master, as its slave does.

Begin with ``understudy.py``. It has no other process beside it, and no node: the folder becomes
one's when it is promoted.
"""
