"""Convert errors of pydantic to four parts."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from punctual.core.errors import InvalidSpec, did_you_mean

#: Pydantic's kinds of complaint, in words.
_MUST = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "too_short": "must not be empty",
    "missing": "must be given",
    "extra_forbidden": "must be a key that a scenario has",
}


def first_complaint(
    error: ValidationError, prefix: str = "", known: Iterable[str] = (), within: str | None = None
) -> InvalidSpec:
    """Return the first of pydantic's complaints.

    * `known`: all valid keys, to suggest one from.
    * `within`: the object that has the keys, for the error's text.
    """
    complaints = error.errors(include_url=False)
    # A key that is misspelt is missing, too.
    complaint = next((each for each in complaints if each["type"] == "extra_forbidden"), complaints[0])
    path = path_of(prefix, complaint["loc"])
    place = "" if within is None else f" in {within}"
    cause = complaint.get("ctx", {}).get("error")
    if isinstance(cause, InvalidSpec):
        where = cause.where if not path or cause.where.startswith(f"`{path}") else f"`{path}`"
        return InvalidSpec(cause.must, cause.got, f"{where}{place}", cause.remedy)
    must = _MUST.get(complaint["type"]) or _lowered(complaint["msg"])
    return InvalidSpec(f"`{path}` {must}", _got(complaint), f"`{path}`{place}", _remedy(complaint, known))


def path_of(prefix: str, location: Iterable[int | str]) -> str:
    """Format a path as ``cluster[0].gpus``; pydantic's own names for alternatives are left out."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part.islower():
            path += f".{part}" if path else part
    return path


def _got(complaint: Any) -> str:
    if complaint["type"] == "missing":
        return "nothing"
    if complaint["type"] == "extra_forbidden":
        return f"`{complaint['loc'][-1]}`"
    return repr(complaint["input"])


def _remedy(complaint: Any, known: Iterable[str]) -> str:
    if complaint["type"] == "extra_forbidden":
        return f"{did_you_mean(str(complaint['loc'][-1]), known, 0.5)}Known: {', '.join(known)}."
    return "See the reference of scenarios for what each key means."


def _lowered(message: str) -> str:
    text = message.removeprefix("Input ").replace("should", "must", 1)
    return text[:1].lower() + text[1:]
