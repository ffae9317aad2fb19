"""Functions over exported queues for PySpark."""
