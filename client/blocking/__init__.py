"""The blocking form: producers, consumers, admin, and the threads that drive them."""
