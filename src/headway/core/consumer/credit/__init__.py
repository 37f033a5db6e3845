"""Credit: how many deliveries a client permits to be in flight."""

from headway.core.consumer.credit.counted_window import CountedWindow
from headway.core.consumer.credit.grant import Grant
from headway.core.consumer.credit.window import MQTT_ID_MAX, NO_LIMIT, Window

__all__ = ["CountedWindow", "Grant", "MQTT_ID_MAX", "NO_LIMIT", "Window"]
