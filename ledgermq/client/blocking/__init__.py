"""The blocking form: producers, consumers, admin, and the threads that drive them.

Begin with ``producer.py`` and ``send_driver.py``.
"""
