"""A plug-in and its parameters, as a scenario names them: ``uniform:1.2,4`` or ``{name = "uniform", low = 1.2}``."""

import inspect
import tomllib
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.request.parameters import checked_values

T = TypeVar("T")

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class PlugInChoice(BaseModel):
    """A registered name, and the values of its parameters.

    Attributes
    ----------
    values
        Given by their place in the text, not by name; `bound_to` gives them names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    values: tuple[Any, ...] = ()
    parameters: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, str):
            return _from_text(given)
        if isinstance(given, Mapping) and "parameters" not in given:
            own = {key: given[key] for key in cls.model_fields if key in given}
            return {**own, "parameters": {key: value for key, value in given.items() if key not in own}}
        return given

    @model_serializer
    def _write(self) -> str | dict[str, Any]:
        keys = self.keys()
        return keys if len(keys) > 1 else self.name

    def keys(self) -> dict[str, Any]:
        """Return the choice as a table."""
        others = {
            key: value for key in type(self).model_fields if key != "parameters" and (value := getattr(self, key))
        }
        return {**others, **self.parameters}

    @property
    def text(self) -> str:
        """Return the choice as on the command line: ``uniform:low=1.2,high=4``."""
        parameters = ",".join(f"{key}={_as_text(value)}" for key, value in self.parameters.items())
        return f"{self.name}:{parameters}" if parameters else self.name

    def bound_to(self, kind: type, where: str) -> Self:
        """Return the choice with each value under the name of its parameter of `kind`.

        Raises
        ------
        InvalidSpec
            `kind` has no such parameter, or not as many, or a value is of the wrong type.
        """
        known = parameters_of(kind)
        if len(self.values) > len(known):
            raise InvalidSpec(
                f"'{self.name}' must get as many values as it has parameters", f"{len(self.values)} values", where,
                f"It has {len(known)}: {', '.join(known) or 'none'}.",
            )  # fmt: skip
        parameters = {**dict(zip(known, self.values, strict=False)), **self.parameters}
        made(kind, parameters, where)
        return self.model_copy(update={"values": (), "parameters": parameters})


class PolicyChoice(PlugInChoice):
    """A policy to be compared.

    Attributes
    ----------
    label
        Name in tables; by default the policy's with its parameters.
    """

    label: str = ""

    @property
    def shown(self) -> str:
        """The label, or what stands for it."""
        return self.label or self.text


def made(kind: type[T], parameters: Mapping[str, Any], where: str) -> T:
    """A `kind` with these parameters.

    Raises
    ------
    InvalidSpec
        A parameter is unknown, missing or cannot be used; the error names it below the path `where`.
    """
    known = parameters_of(kind)
    for key in parameters:
        if key not in known:
            raise InvalidSpec(
                f"`{where}` must have known parameters only", f"`{key}`", f"`{where}.{key}`",
                f"{did_you_mean(key, known, 0.5)}It has: {', '.join(known) or 'none'}.",
            )  # fmt: skip
    needed = parameters_of(kind, needed=True)
    missing = next((key for key in needed if key not in parameters), None)
    if missing is not None:
        raise InvalidSpec(
            f"`{where}` must have all parameters that it cannot do without", f"no `{missing}`", f"`{where}.{missing}`",
            f"Give it, as in `NAME:{missing}=...`. It has: {', '.join(known)}.",
        )  # fmt: skip
    checked = checked_values(kind, parameters, where)
    try:
        return kind(**checked)
    except InvalidSpec as error:
        raise InvalidSpec(error.must, error.got, f"`{where}`", error.remedy) from error


def parameters_of(kind: type, *, needed: bool = False) -> list[str]:
    """Names of what `kind` is made with, in order; `needed`: only of what it cannot be made without."""
    items = inspect.signature(kind).parameters.items()
    own = {name: item for name, item in items if item.kind not in _ANY_NUMBER}
    return [name for name, item in own.items() if not needed or item.default is item.empty]


def value_of(text: str) -> Any:
    """Return the value of a text on the command line, read as TOML; a bare word is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number or lists within lists without end
        return text


def _from_text(text: str) -> dict[str, Any]:
    name, colon, rest = text.partition(":")
    if colon and not rest.strip():
        raise InvalidSpec(
            "values must follow the colon", f"none, in '{text}'", f"'{text}'",
            f"Leave the colon out (`{name.strip()}`), or write `name:low=1.2,high=4`.",
        )  # fmt: skip
    values: list[Any] = []
    parameters: dict[str, Any] = {}
    for part in _split(rest):
        key, equals, value = part.partition("=")
        if equals:
            parameters[key.strip()] = value_of(value.strip())
        elif parameters:
            raise InvalidSpec(
                "values without a name must come before those with one", f"'{part}'", f"'{text}'",
                "Write `name:1.2,4` or `name:low=1.2,high=4`.",
            )  # fmt: skip
        else:
            values.append(value_of(part.strip()))
    return {"name": name.strip(), "values": tuple(values), "parameters": parameters}


def _split(text: str) -> list[str]:
    """Parts between commas that are not inside brackets."""
    parts, depth, begun = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    return [part for part in [*parts, text[begun:]] if part.strip()]


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(_as_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}={_as_text(item)}' for key, item in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)
