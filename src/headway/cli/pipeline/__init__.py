"""`headway pipeline`: what telemetry says of slow consumers; views of topics."""
