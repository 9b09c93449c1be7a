"""Convert nested values to named tensors and JSON values, and back."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from punctual.tracking.complaint import invalid

#: Marks in place of what JSON cannot carry as such: a tensor's name, the pairs of a mapping, the items of a tuple.
_TENSOR, _PAIRS, _COUNTS, _TUPLE = "$tensor", "$pairs", "$counts", "$tuple"


def take_apart(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Replace each tensor in `value` by its name, which begins with `name`; the tensors go into `tensors`.

    Raises
    ------
    ValueError
        The value holds an object that is neither a tensor nor a number, a text, a list, a tuple or a mapping.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {_TENSOR: name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return _items_apart(value, name, tensors)
    if isinstance(value, tuple):
        return {_TUPLE: _items_apart(value, name, tensors)}
    if isinstance(value, Mapping):
        mark = _COUNTS if isinstance(value, Counter) else _PAIRS
        pairs = [[key, take_apart(part, f"{name}/{key}", tensors)] for key, part in value.items()]
        return {mark: pairs}
    raise invalid(
        "the state of a training must be made of tensors, numbers, texts, lists and mappings",
        f"{type(value).__name__}", f"'{name}'", "Leave it out of `extra`, or give it a state_dict() without it.",
    )  # fmt: skip


def _items_apart(items: Any, name: str, tensors: dict[str, Tensor]) -> list[Any]:
    return [take_apart(item, f"{name}/{i}", tensors) for i, item in enumerate(items)]


def put_together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `take_apart`: mappings become dictionaries; tensors are those given, not copies."""
    if isinstance(value, list):
        return [put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((mark, content),) = value.items()
    if mark == _TENSOR:
        return tensors[content]
    if mark == _TUPLE:
        return tuple(put_together(item, tensors) for item in content)
    made = {key: put_together(part, tensors) for key, part in content}
    return Counter(made) if mark == _COUNTS else made
