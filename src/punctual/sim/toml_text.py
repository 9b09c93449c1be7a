"""Writing TOML: what a scenario holds, and no more. Python itself reads TOML, but does not write it."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: Mapping[str, Any]) -> str:
    """`table` as TOML; tables within it become sections, everything deeper stands on one line; None is left out."""
    present = {key: value for key, value in table.items() if value is not None}
    plain = {key: value for key, value in present.items() if not isinstance(value, Mapping)}
    sections = {key: value for key, value in present.items() if isinstance(value, Mapping) and value}
    blocks = [_lines(plain), *(f"[{_key(name)}]\n{_lines(section)}" for name, section in sections.items())]
    return "\n".join(block for block in blocks if block)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return _quoted(value)


def _quoted(text: str) -> str:
    """As in JSON, which leaves only one sign unescaped that TOML does not allow."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
