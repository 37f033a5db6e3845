"""AMQP 1.0: bytes to performatives and runs, records to transfers."""
