"""The codecs that there are. They are found, not listed: each is a folder here with a ``codec.py``.

A codec that needs another one's form of queues asks here, when it first has something to write.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from headway import wire
from headway.wire.codec import Codec, QueueForm


@cache
def codecs() -> dict[str, Codec]:
    """Returns the codecs by name, in the order of their ports."""
    names = [module.name for module in iter_modules(wire.__path__) if module.ispkg]
    found: dict[str, Codec] = {name: import_module(f"{wire.__name__}.{name}.codec").CODEC for name in names}
    return dict(sorted(found.items(), key=lambda item: item[1].port))


@cache
def queue_form() -> QueueForm:
    """Returns the form in which queues keep records."""
    (form,) = [codec.queues for codec in codecs().values() if codec.queues is not None]
    return form
