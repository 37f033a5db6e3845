"""Commands that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.base.errors import Reason, Refused


def refused(reason: Reason, words: str = ".") -> Any:
    """The block is refused for this reason."""
    return _Refused(reason, words)


class _Refused:
    def __init__(self, reason: Reason, words: str) -> None:
        self.reason = reason
        self.raises = pytest.raises(Refused, match=words)

    def __enter__(self) -> None:
        self.caught = self.raises.__enter__()

    def __exit__(self, *about: Any) -> bool:
        done = self.raises.__exit__(*about)
        assert self.caught.value.reason is self.reason
        return bool(done)
