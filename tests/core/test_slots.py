"""Values that are set through their slots are those that `dataclasses` would make."""

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from punctual.core import commands, events
from punctual.core.fast_init import fast_init, unchecked_constructor
from punctual.core.job import JobSpec, JobView
from punctual.core.resources import Resources
from punctual.core.speed import Shape


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    amount: float = 1.0
    _: object = None
    facts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(self.name)


@fast_init
@dataclass(frozen=True, slots=True)
class Quick(Plain):
    later: int = field(default=3, kw_only=True)


def test_arguments_and_defaults_stay() -> None:
    made = Quick("a", facts={"b": 2.0}, later=4)
    assert [getattr(made, field.name) for field in fields(made)] == ["a", 1.0, None, {"b": 2.0}, 4]
    assert Quick("a").facts == {}
    assert Quick("a").facts is not Quick("a").facts
    with pytest.raises(TypeError):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Quick("a", 1.0, None, {}, 4)  # type: ignore[call-arg]


def test_a_value_is_checked_compared_copied_and_frozen_as_before() -> None:
    with pytest.raises(ValueError, match="broken"):
        Quick("broken", -1.0)
    value = Quick("a", 2.0)
    assert value == replace(value) == pickle.loads(pickle.dumps(value))
    assert replace(value, amount=3.0).amount == 3.0
    with pytest.raises(FrozenInstanceError):
        value.amount = 4.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "cls",
    [JobSpec, JobView, *(cls for module in (events, commands) for cls in vars(module).values() if is_dataclass(cls))],
)
def test_messages_and_views_take_their_fields(cls: type) -> None:
    assert list(inspect.signature(cls).parameters) == [field.name for field in fields(cls)]


def test_a_value_is_of_the_class_itself_when_it_is_checked_and_afterwards() -> None:
    seen: list[type] = []

    @fast_init
    @dataclass(frozen=True, slots=True)
    class Watched:
        amount: float

        def __post_init__(self) -> None:
            seen.append(type(self))
            with pytest.raises(FrozenInstanceError):
                self.amount = 1.0  # type: ignore[misc]

    assert [type(Watched(2.0)), *seen] == [Watched, Watched]


@pytest.mark.parametrize("cls", [Resources, Shape, Quick])
def test_a_maker_makes_what_the_class_makes(cls: type) -> None:
    made_of = {Resources: (1.5, 2, 3, ()), Shape: (2, 1.0, 1, "V100", 0), Quick: ("a", 1.0, None, {"b": 2.0}, 4)}[cls]
    made: Any = unchecked_constructor(cls)(*made_of)
    value = cls(**{field.name: it for field, it in zip(fields(cls), made_of, strict=True)})
    assert made == value == pickle.loads(pickle.dumps(made)) == replace(made)
    assert (type(made), repr(made)) == (cls, repr(value))
    if cls is not Quick:  # it holds a dictionary
        assert hash(made) == hash(value)
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(cls)[0].name, None)


def test_a_maker_takes_all_fields() -> None:
    with pytest.raises(TypeError):
        unchecked_constructor(Shape)(1, 1.0)
