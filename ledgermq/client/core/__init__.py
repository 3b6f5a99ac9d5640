"""Links to nodes, questions and answers; without a thread, a loop or a clock of their own.

Begin with ``link.py``, then ``requests.py``.
"""
