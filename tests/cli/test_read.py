"""`punctual read`: what would be read from a log."""

import json

import pytest
from tests.cli.programs import Terminal

EPOCHS = "".join(f"Epoch [{e}/3], Step [{i}/60], Loss: 0.4\n" for e in (1, 2, 3) for i in range(10, 61, 10))
BARS = "".join(f"\rMap: {i}%|#| {i}/100 [00:01<00:09, 9.0 examples/s]" for i in range(101)) + "\n"


def log(terminal: Terminal, text: str) -> str:
    """A file with this text."""
    (terminal.folder / "train.log").write_text(text)
    return "train.log"


def test_each_series_is_told_with_what_it_is(terminal: Terminal) -> None:
    done = terminal.tell("read", log(terminal, BARS + EPOCHS))
    assert done.returncode == 0, done.stderr
    first, _, head, *rows = done.stdout.splitlines()
    assert first == "read at the end: step 180 of 180 (3 times 60)"
    assert head.split("  ")[0] == "COUNTED"
    assert [row for row in rows if "something else" in row and "Map:" in row]
    assert [row for row in rows if "the training's" in row and "60 of 60, 3 times" in row]


def test_machines_get_an_object(terminal: Terminal) -> None:
    done = terminal.tell("read", "--json", log(terminal, EPOCHS))
    told = json.loads(done.stdout)
    assert (told["steps"], told["total"], told["sure"], told["doubt"], told["epochs"]) == (180, 180, True, "none", 3)
    (training,) = [series for series in told["series"] if series["is_training"]]
    assert (training["last"], training["total"], training["times"], training["unit"]) == (60, 60, 3, "step")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Epoch 1: 10/600\nEpoch 1: 20/600\n", "does not say how many epochs there are"),
        ("".join(f"\r{i}%|#| {i}/100 [00:01<00:09, 9.0it/s]" for i in range(101)), "one part of several"),
        ("iter 1: loss 0.1\niter 2: loss 0.1\n", "does not say how many steps there are"),
    ],
)
def test_a_doubt_is_told_with_what_to_do(terminal: Terminal, text: str, words: str) -> None:
    done = terminal.tell("read", log(terminal, text))
    assert done.stdout.count("WARNING") == 1
    assert words in done.stdout
    assert "--steps" in done.stdout


def test_an_expression_can_be_tried(terminal: Terminal) -> None:
    file = log(terminal, "at 3 -- 9\n" * 60)
    fits = terminal.tell("read", file, "--progress-regex", r"at (\d+) -- (\d+)")
    assert (fits.returncode, fits.stdout.splitlines()[0]) == (0, "read at the end: step 3 of 9")
    misses = terminal.tell("read", file, "--progress-regex", r"at (\d+)/(\d+)")
    assert misses.returncode == 1
    assert "fits none of the first 50 lines" in misses.stdout
    steps = terminal.tell("read", file, "--progress-regex", r"at (\d+)", "--steps", "30")
    assert steps.stdout.splitlines()[0] == "read at the end: step 3 of 30"


def test_nothing_is_told_as_nothing(terminal: Terminal) -> None:
    done = terminal.tell("read", log(terminal, "hello\n"))
    assert done.returncode == 1
    assert done.stdout.startswith("nothing is counted")


@pytest.mark.parametrize("arguments", [["nofile.log"], ["train.log", "--progress-regex", "("], ["."]])
def test_what_cannot_be_read_is_an_error(terminal: Terminal, arguments: list[str]) -> None:
    log(terminal, EPOCHS)
    done = terminal.tell("read", *arguments)
    assert done.returncode == 2
    assert "to do:" in done.stderr
