"""What the pages say can be written can be written."""

import re
import tomllib
from pathlib import Path

import pytest

from punctual.sim.choice import parameters_of
from punctual.sim.physics import Physics
from punctual.sim.scenario import Scenario, TraceSection

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["reference/scenario.md", "how-to/compare-policies.md"]
REFERENCE = (DOCS / "reference" / "scenario.md").read_text(encoding="utf-8")
BLOCKS = [
    block for page in PAGES for block in re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_are_scenarios(block: str) -> None:
    keys = {"policies": ["fifo"], **tomllib.loads(block)}
    assert Scenario.of(Scenario.of(keys).keys()) == Scenario.of(keys)


def test_every_key_is_documented() -> None:
    keys = [*Scenario.model_fields, *TraceSection.model_fields, *parameters_of(Physics)]
    assert not [key for key in keys if f"`{key}`" not in REFERENCE and f"`[{key}]`" not in REFERENCE]
