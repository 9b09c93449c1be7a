"""Tokens of the service, from the command line."""

import json

import pytest

from punctual.api.database import ServiceDatabase
from punctual.api.tokens import Tokens
from punctual.cli._app import prepared
from punctual.daemon.paths import service_root


def said(capsys: pytest.CaptureFixture[str], *words: str, exit_code: int = 0) -> str:
    """What a command prints, its errors included."""
    with pytest.raises(SystemExit) as left:
        prepared(list(words))()
    assert (left.value.code or 0) == exit_code
    return "".join(capsys.readouterr())


def test_a_token_is_made_listed_and_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "token", "create", "laptop", "--role", "submitter", "--expires", "30d").strip()
    known = Tokens(ServiceDatabase(service_root()))
    assert known.of(text).role == "submitter"
    (listed,) = (json.loads(line) for line in said(capsys, "token", "list", "--json").splitlines())
    assert (listed["name"], listed["role"]) == ("laptop", "submitter")
    table = said(capsys, "token", "list")
    assert "laptop" in table
    assert text not in table
    assert json.loads(said(capsys, "token", "revoke", "laptop", "--json")) == {"name": "laptop", "revoked": True}
    assert known.of(text) is None


def test_without_more_it_tells_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "token")
    assert "Make, list and revoke tokens" in told
    assert "  revoke " in told
    assert "error:" not in told


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a", "--role", "king"),
        ("create", "../a"),
        ("create", "a", "--expires", "5"),
        ("create", "a", "--expires", "9999999d"),
        ("revoke", "a"),
    ],
)
def test_what_cannot_be_done_is_told_in_four_parts(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = said(capsys, "token", *words, exit_code=2)
    assert all(part in told for part in ("error:", "got:", "for:", "to do:"))
