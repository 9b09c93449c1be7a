"""`punctual page`: the link that lets its reader in."""

from pathlib import Path

import pytest
from tests.cli.test_token import said

from punctual.api.daemon_process import page_link
from punctual.core.errors import InvalidSpec


def test_the_link_has_the_token_and_the_job(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a+b\n")
    addresses = ["/run/socket", "http://127.0.0.1:4747"]
    assert page_link(addresses, tmp_path / "token") == "http://127.0.0.1:4747/#token=a%2Bb"
    assert page_link(addresses, tmp_path / "token", "train 1").endswith("&job=train%201")


@pytest.mark.parametrize(("addresses", "got"), [(["/run/socket"], "its socket only"), (["http://[::1]:1"], "No such")])
def test_without_an_address_or_a_token_it_says_what_to_do(tmp_path: Path, addresses: list[str], got: str) -> None:
    with pytest.raises(InvalidSpec, match=got):
        page_link(addresses, tmp_path / "token")


def test_a_damaged_token_is_told_as_one_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\x00")
    with pytest.raises(InvalidSpec, match="the owner's token must be there"):
        page_link(["http://[::1]:1"], tmp_path / "token")


def test_without_a_daemon_it_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "page", exit_code=2)
    assert "a daemon must run" in told
    assert "punctual up" in told
