"""JSON as nodes. Python's own reader says whether it is valid; the lines are those of the reader of blocks."""

from __future__ import annotations

import json

from headway.migration.formats.braces import read_braces
from headway.migration.formats.file import Bad, File
from headway.migration.formats.node import Node, Where


def read_json(file: File) -> Node:
    """Reads a file. Raises Bad."""
    try:
        json.loads(file.text())
    except json.JSONDecodeError as error:
        raise Bad(Where(file.name, error.lineno), f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise Bad(Where(file.name, 1), "is nested too deep") from None
    except ValueError:
        raise Bad(Where(file.name, 1), "has a number of too many digits") from None
    return read_braces(file)
