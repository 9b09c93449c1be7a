"""JSON for every reader: without `NaN` and `Infinity`, which Python writes and JSON does not have."""

import json
from math import isfinite
from typing import Any


def finite(value: Any) -> Any:
    """Return `value`, made of JSON's types, with null in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON for a program; all characters beyond ASCII are escaped."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)
