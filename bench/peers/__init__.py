"""The brokers that are compared, each with settings that are sensible for it: one file per peer."""
