"""The actors: processes of the demo that speak MQTT as any client would."""
