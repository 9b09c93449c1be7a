"""No number that is infinite or none gets into a job, whichever way it comes."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.request.job_options import JobOptions
from punctual.request.jobs_file import declared_jobs, read_jobs, tables_in
from punctual.request.json_text import json_text
from punctual.request.submission import submission_of

MACHINE = Resources(4.0, 2)
TEXTS = ["inf", "nan", "-inf", "Infinity", "1e999", "-1e999", "1e308", "9" * 400]
FORMS = {
    "deadline": ["{}", "{}s", "{}h", "+{}s", "PT{}S"],
    "cores": ["{}", "0.1..{}", "{}..2"],
    "workers": ["{}", "1..{}"],
    "gpus": ["{}", "0.{}"],
    "cores_per_worker": ["{}"],
    "servers": ["{}"],
    "margin": ["{}", "{}%"],
    "until": ["loss<{}"],
    "work": ["{}", "{}s", "{}h"],
}
#: As TOML has them.
VALUES = ["inf", "-inf", "nan", "1e999", "9" * 300, *(f'"{text}"' for text in TEXTS)]
OPTIONS = [*FORMS, "weight", "steps", "retries", "submit_at"]


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a value that is made of lists and dictionaries."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float):
        yield value


def beside(option: str) -> dict[str, Any]:
    """What an option needs to be taken at all."""
    return {"workers": "1..2"} if option in {"cores_per_worker", "servers"} else {}


@pytest.mark.parametrize("option", FORMS)
def test_of_the_command_line(option: str) -> None:
    for text in (form.format(text) for form in FORMS[option] for text in TEXTS):
        try:
            made = submission_of(JobOptions.given({"program": ["true"], **beside(option), option: text}), 0.0, MACHINE)
        except InvalidSpec:
            continue
        assert all(isfinite(number) for number in numbers(asdict(made.spec))), text


@pytest.mark.parametrize("weight", [inf, nan, -inf, 1e308, -1.0, 0.0])
def test_as_a_weight(weight: float) -> None:
    with pytest.raises(InvalidSpec, match="`weight` must be") as refused:
        submission_of(JobOptions.given({"program": ["true"], "weight": weight}), 0.0, MACHINE)
    assert refused.value.option == "weight"


@pytest.mark.parametrize("option", OPTIONS)
def test_of_a_file_of_jobs(option: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    for value in VALUES:
        others = "".join(f'{name} = "{text}"\n' for name, text in beside(option).items())
        file.write_text(f'[[job]]\nprogram = "true"\n{others}{option} = {value}\n')
        made: list[Any] = []
        for read in (
            lambda: [each.spec for each in read_jobs(file, 0.0, MACHINE)],
            lambda: declared_jobs(tables_in(file), "the file", MACHINE),
        ):
            try:
                made += read()
            except InvalidSpec:
                continue
        assert all(isfinite(number) for each in made for number in numbers(asdict(each))), value


def test_json_for_programs_has_none_either() -> None:
    told = json_text({"a": inf, "b": [nan, {"c": -inf}], "d": (1.5, None), "e": "Infinity"})
    assert json.loads(told, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, {"c": None}],
        "d": [1.5, None],
        "e": "Infinity",
    }
