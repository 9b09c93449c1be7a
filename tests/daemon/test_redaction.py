"""What is recorded of a command line."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.request import redaction
from punctual.request.redaction import LEFT_OUT, is_secret_name, redacted

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "argv",
    [
        ["train.py", "--api-key", SECRET],
        ["train.py", f"--token={SECRET}"],
        ["train.py", "--hub_token", SECRET, "--epochs", "3"],
        ["env", f"PASSWORD={SECRET}", "python", "train.py"],
        ["env", f"PASSWORD=two {SECRET}"],
        ["python", f"wandb.api_key={SECRET}", f"+logger.apiKey={SECRET}"],
        [
            "sh",
            "-c",
            f"AWS_SECRET_ACCESS_KEY={SECRET} python train.py --password {SECRET} 'postgres://me:{SECRET}@db/x'",
        ],
        ["curl", "-H", f"Authorization: Bearer {SECRET}", f"https://me:{SECRET}@host:80/path"],
        ["train.py", "--data", f"redis://:p@{SECRET}@host/0"],
        ["train.py", f'--config={{"lr": 1, "api_key": "{SECRET}"}}'],
        ["train.py", f"https://host/x?name=a&token={SECRET}&b=c"],
    ],
)
def test_what_looks_like_a_secret_is_left_out(argv: list[str]) -> None:
    told = redacted(argv)
    assert SECRET not in "\0".join(told)
    assert LEFT_OUT in "\0".join(told)
    assert told[0] == argv[0]


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--max-tokens", "512", "--tokenizer=gpt2", "--key", "a", "--sort-key=b", "--author", "me"],
        ["python", "-m", "train", "lr=0.1", "--bypass", "x", "https://host:8080/a", "user@host:path", "--verbose", "token", "a"],
        ["train.py", "--token", "--verbose", "--password"],
        ["", " ", "=", "--=", "\n"],
    ],
)  # fmt: skip
def test_what_does_not_is_recorded(argv: list[str]) -> None:
    assert redacted(argv) == tuple(argv)


def test_the_values_that_a_user_calls_secret_are_left_out_wherever_they_stand() -> None:
    assert redacted(["train", "-k", "abc", "x-abcd-abc"], ["abc", "abcd", ""]) == ("train", "-k", "***", "x-***-***")


@given(st.lists(st.text(max_size=60) | st.text("-=:/@ aToken\"'{,", max_size=60), max_size=5))
def test_any_command_line_is_recorded_word_by_word(argv: list[str]) -> None:
    told = redacted(argv)
    assert len(told) == len(argv)
    assert redacted(told) == told


@pytest.mark.parametrize("text", ["a" * 200_000, "--token" * 50_000, "x://" * 50_000, "a=" * 100_000, "a b " * 50_000])
def test_a_long_word_takes_no_longer_than_it_is(text: str) -> None:
    redacted([text, text])


def test_names_of_secrets() -> None:
    assert is_secret_name("--HF-TOKEN")
    assert is_secret_name("dbPassword")
    assert not is_secret_name("--tokens-per-step")
    assert not is_secret_name("")


def test_examples() -> None:
    assert doctest.testmod(redaction).failed == 0
