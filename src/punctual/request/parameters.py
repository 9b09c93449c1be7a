"""Check the values of a plug-in's parameters, which a user names: live and in a simulation alike."""

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from punctual.request.pydantic_errors import first_complaint


def checked_values(kind: type, parameters: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of parameters that `kind` has, as it takes them; raises `InvalidSpec` for a value of another type.

    `where`: path of the parameters, for the error.
    """
    hints = _hints(kind)
    return {key: _checked(hints.get(key, Any), value, f"{where}.{key}") for key, value in parameters.items()}


def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(getattr(kind, "__init__"))  # noqa: B009 -- the type checker minds the plain form
    except (NameError, TypeError):
        return {}


def _checked(hint: Any, value: Any, where: str) -> Any:
    try:
        return TypeAdapter(hint).validate_python(_frozen(value), strict=True)
    except ValidationError as error:
        raise first_complaint(error, where) from None
    except (PydanticSchemaGenerationError, PydanticUserError):
        return value


def _frozen(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_frozen(item) for item in value)
    return value
