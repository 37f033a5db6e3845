"""The codec of OpenWire, the protocol of ActiveMQ's JMS client: loose marshalling, versions 9 to 12."""
