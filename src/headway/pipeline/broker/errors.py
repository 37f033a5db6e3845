"""Errors that end a query: one line each, as Spark shows them below its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from headway.core.base import HeadwayError

P = ParamSpec("P")
T = TypeVar("T")


class SourceError(HeadwayError):
    """An error to put right, or a broker that refuses."""


class Away(SourceError):
    """The broker does not answer, or not to the end. It may pass."""


class OffsetsGone(SourceError):
    """The broker has deleted what was asked for."""

    def __init__(self, text: str, earliest: int) -> None:
        super().__init__(text)
        self.earliest = earliest


class DataLoss(SourceError):
    """Records that this query was to have are not there any more."""


def in_one_line(call: Callable[P, T]) -> Callable[P, T]:
    """Decorates a method that Spark calls: an error reaches Spark as one line, without our traceback."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except HeadwayError as error:
            raise error.with_traceback(None) from None

    return called
