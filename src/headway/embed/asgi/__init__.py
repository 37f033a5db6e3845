"""The broker as an ASGI application."""
from typing import Any


class Application:
    def __init__(self, broker: Any) -> None: ...
