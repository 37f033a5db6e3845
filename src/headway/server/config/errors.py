"""Config errors in plain words: the key as it stands in the file, and the values that it takes."""

from __future__ import annotations

import difflib
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headway.server.config.fields import shown
from headway.store.toml import lower_first


def in_plain_words(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Words the errors that pydantic found in a file whose tables are ``root``, one line each."""
    return [_plain(details, root) for details in error.errors(include_url=False)]


def _plain(details: ErrorDetails, root: type[BaseModel]) -> str:
    """Words one error."""
    path = list(details["loc"])
    if path[-1:] == ["[key]"]:
        path.pop()
    where, kind = _dotted(path), details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, root)
    if kind == "headway":
        return f"{where}: {details['ctx']['text']}"
    if kind == "missing":
        return f"{where}: is missing"
    expected = {
        "bool_type": "true or false",
        "model_type": f"a table, [{where}]",
        "dict_type": f"a table, [{where}]",
        "list_type": f"tables in double brackets, [[{where}]]",
    }.get(kind)
    if expected is None:
        return f"{where}: {lower_first(details['msg'])}"
    return f"{where}: expected {expected}, not {shown(details['input'])}"


def _unknown_key(path: list[int | str], root: type[BaseModel]) -> str:
    table, word = _model_at(root, path[:-1]), str(path[-1])[:60]
    known = [field.alias or name for name, field in table.model_fields.items()]
    known += ["policy"] if table is root else []
    what = "section" if len(path) == 1 else "key"
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return f"{_dotted(path)}: unknown {what} ({hint})"


def _model_at(root: type[BaseModel], path: list[int | str]) -> type[BaseModel]:
    """Returns the class of the table at this path of the file."""
    kind: Any = root
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = next(field.annotation for name, field in kind.model_fields.items() if (field.alias or name) == part)
        else:
            kind = get_args(kind)[-1]
        if get_origin(kind) in (Union, UnionType):
            kind = get_args(kind)[0]
    return kind  # type: ignore[no-any-return]


def _dotted(path: list[int | str]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            text += ("." if text else "") + (part if part.replace("-", "_").isidentifier() else f'"{part[:60]}"')
    return text
