"""What `punctual up` says of the page."""

import sys

import pytest

from punctual.cli.up import _tell
from punctual.daemon.daemon_request import Ready
from punctual.daemon.paths import owner_token_file, service_root


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_owner_s_token_is_shown_at_a_terminal_alone(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = owner_token_file(service_root())
    file.write_text("secret-token\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    _tell(Ready(run="service", pid=1, addresses=("/run/socket", "http://127.0.0.1:4747")), as_json=False)
    assert ("http://127.0.0.1:4747/#token=secret-token\n" in capsys.readouterr().err) is is_terminal


def test_without_an_address_no_page_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _tell(Ready(run="service", pid=1, addresses=("/run/socket",)), as_json=False)
    assert "browser" not in capsys.readouterr().err
