"""Names, classes and what is said when there is none."""

import subprocess
import sys
from dataclasses import fields
from importlib.metadata import EntryPoint

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec


def offer(monkeypatch: pytest.MonkeyPatch, *entry_points: EntryPoint) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [one for one in entry_points if one.group == group]
    )  # fmt: skip


def entry(name: str, value: str, family: str = "policies") -> EntryPoint:
    return EntryPoint(name=name, value=value, group=f"punctual.{family}")


def test_lists_the_folder() -> None:
    assert "proportional" in registry.names("policies")
    assert {"decor-pi", "proportional-integral", "remaining-cost"} <= set(registry.names("controllers"))
    assert not any(name.startswith(("_", "-")) for name in registry.names("controllers"))


@pytest.mark.parametrize("family", ["controllers", "policies"])
def test_every_name_leads_to_its_class(family: str) -> None:
    for name in registry.names(family):
        assert registry.load(family, name).__name__ == registry.class_name(name)


def test_ours_come_first_and_others_are_looked_for_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("aaa", "any:Thing"), entry("fifo", "any:Thing"))
    assert list(registry.each("policies")) == [*(name for name in registry.names("policies") if name != "aaa"), "aaa"]
    monkeypatch.delattr("importlib.metadata.entry_points")
    assert registry.load("policies", next(registry.each("policies")))


def test_class_name() -> None:
    assert registry.class_name("decor-pi") == "DecorPi"


def test_listing_imports_no_plug_in() -> None:
    program = (
        "import sys; from punctual import registry; registry.names('policies');"
        "sys.exit('punctual.policies.proportional' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("family", ["controllers", "policies"])
def test_the_parameters_are_all_that_the_class_takes_inherited_ones_too(family: str) -> None:
    for name in registry.names(family):
        taken = {each.name for each in fields(registry.load(family, name)) if each.init}
        assert set(registry.parameters(family, name)) == taken, name
    assert registry.parameters("policies", "promises-first")["risk_sigmas"] == "1.0"


def test_an_unknown_name_gets_the_closest_one() -> None:
    with pytest.raises(InvalidSpec) as caught:
        registry.load("policies", "proportionate")
    assert "proportionate" in caught.value.got
    assert "Did you mean `proportional`?" in caught.value.remedy


def test_a_name_like_nothing_gets_the_list() -> None:
    with pytest.raises(InvalidSpec) as caught:
        registry.load("policies", "zzz")
    assert "Did you mean" not in caught.value.remedy
    assert "proportional" in caught.value.remedy


@pytest.mark.parametrize("family", ["colours", "wire", "a.b", "wire.b", "traces.b", "..", ""])
def test_an_unknown_family(family: str) -> None:
    with pytest.raises(InvalidSpec, match="family"):
        registry.names(family)


def test_a_strangers_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("ordered", "collections:OrderedDict"))
    assert "ordered" in registry.names("policies")
    assert registry.load("policies", "ordered").__name__ == "OrderedDict"


def test_a_broken_plug_in_is_an_error_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("broken", "punctual_that_is_not_there:Policy"))
    assert {"broken", "proportional"} <= set(registry.names("policies"))
    assert registry.load("policies", "proportional")
    with pytest.raises(InvalidSpec, match="ModuleNotFoundError"):
        registry.load("policies", "broken")


def test_a_plug_in_that_is_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("function", "json:dumps"))
    with pytest.raises(InvalidSpec, match="no class"):
        registry.load("policies", "function")


def test_our_names_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, entry("proportional", "collections:OrderedDict"))
    assert registry.load("policies", "proportional").__name__ == "Proportional"
