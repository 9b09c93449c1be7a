"""`punctual token`: tokens for the service's HTTP API."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from punctual.api.database import ServiceDatabase
from punctual.api.tokens import ROLES, Token, Tokens
from punctual.cli._help import show_commands
from punctual.cli._streams import print_table, write_answer, write_json
from punctual.daemon.paths import service_root
from punctual.request.quantities import parse_duration_s

token = typer.Typer(
    help="Make, list and revoke tokens of the service's HTTP API.", invoke_without_command=True, callback=show_commands
)

_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COLUMNS = ("NAME", "ROLE", "MADE", "EXPIRES")


@token.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the token, in lists and records of changes.")],
    role: Annotated[
        str, typer.Option(metavar="ROLE", help=f"One of {', '.join(ROLES)}; each may what those before it may.")
    ] = "viewer",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time until it expires, 30d. [default: until revoked]")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Make a token; its text is printed now and never again."""
    with _tokens() as tokens:
        text = tokens.create(name, role, None if expires is None else parse_duration_s(expires, "`--expires`"))
    write_answer({"name": name, "role": role, "token": text}, text, as_json=as_json)


@token.command("list")
def list_tokens(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per token and line.")] = False,
) -> None:
    """List the tokens; their texts are kept nowhere."""
    with _tokens() as tokens:
        known = tokens.all()
    if as_json:
        for each in known:
            write_json(_fields(each))
        return
    print_table(_COLUMNS, [_row(each) for each in known])


@token.command()
def revoke(name: Annotated[str, typer.Argument(help="Name of the token.")], as_json: _AsJson = False) -> None:
    """Refuse a token from the next request on."""
    with _tokens() as tokens:
        tokens.revoke(name)
    write_answer({"name": name, "revoked": True}, f"token '{name}' is revoked", as_json=as_json)


@contextmanager
def _tokens() -> Iterator[Tokens]:
    with closing(ServiceDatabase(service_root())) as database:
        yield Tokens(database)


def _fields(known: Token) -> dict[str, str | None]:
    return {
        "name": known.name,
        "role": known.role,
        "created": _wall(known.created_at).isoformat(timespec="seconds"),
        "expires": None if known.expires_at is None else _wall(known.expires_at).isoformat(timespec="seconds"),
    }


def _row(known: Token) -> tuple[str, str, str, str]:
    expires = "never" if known.expires_at is None else f"{_wall(known.expires_at):%Y-%m-%d %H:%M}"
    if known.is_expired(datetime.now(UTC).timestamp()):
        expires += " (expired)"
    return known.name, known.role, f"{_wall(known.created_at):%Y-%m-%d %H:%M}", expires


def _wall(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone()
