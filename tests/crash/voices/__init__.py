"""Clients of the protocols that are alike in what they can say: STOMP, AMQP 1.0 and OpenWire."""
