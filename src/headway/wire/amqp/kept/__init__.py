"""The form in which queues keep messages of other protocols."""
