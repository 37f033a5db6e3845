"""Access to a running broker from outside: its address, and views of its topics (``View``).

Views are loaded when they are asked for: the command line needs only addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.client.changes import AsOf, Change, Current, Delete, Entry, Gap, Key, OutOfFocus, Put, Stale
    from headway.client.follower import ViewError
    from headway.client.view import ThreadView, View

__all__ = [
    "AsOf", "Change", "Current", "Delete", "Entry", "Gap", "Key", "OutOfFocus", "Put", "Stale", "ThreadView",
    "View", "ViewError",
]
_FILES = {"View": "view", "ThreadView": "thread_view", "ViewError": "follower"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"headway.client has no {name}")
    from importlib import import_module

    return getattr(import_module(f"headway.client.{_FILES.get(name, 'changes')}"), name)
