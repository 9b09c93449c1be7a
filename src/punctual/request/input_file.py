"""Read a user's TOML file: jobs, their cluster, and settings of a simulation; each may stand alone."""

import os
import re
import select
import tomllib
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.units import span

#: Keys of simulations only.
SIMULATED_KEYS = ("policies", "seeds", "trace", "deadlines", "scaling", "physics", "controller")
KEYS = ("job", "cluster", "pool", "machines", *SIMULATED_KEYS)

#: More than anybody writes by hand, and little enough to be held in memory.
N_CHARACTERS_MAX = 16_000_000

#: Seconds without data from a file that is a pipe: another program may be writing it.
_SILENT_S_MAX = 10.0
#: Most parts of a key. The time to read TOML grows with their square.
_N_PARTS_MAX = 100
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}\.[ \t]*){{{_N_PARTS_MAX}}}", re.MULTILINE)

_REMEDY = "Tables `[[job]]` are jobs, `[[cluster]]` groups of nodes, `[[pool]]` machines to ask for, and `[machines]` says of whom; the reference of scenarios has the other keys."


def keys_in(path: Path) -> dict[str, Any]:
    """Return the keys of a file, as written.

    Raises `InvalidSpec`: the file cannot be read, is too long or no TOML, says nothing, or has a key that no such file
    has.
    """
    try:
        text = text_of(path)
        _check_lengths_of_keys(text, path)
        keys = tomllib.loads(text)
    except OSError as error:
        raise InvalidSpec(
            "the file must be one that can be read", error.strerror or str(error), f"'{path}'", "Check its name."
        ) from None
    except InvalidSpec:
        raise
    except UnicodeDecodeError as error:
        got = f"byte {error.object[error.start]:#04x} at place {error.start}, which is none"
        raise InvalidSpec("the file must be text in UTF-8", got, f"'{path}'", "Save it in UTF-8.") from None
    except (ValueError, RecursionError) as error:  # no TOML, a number without end; lists in lists without end
        raise InvalidSpec("the file must be TOML", str(error), f"'{path}'", _REMEDY) from None
    unknown = next((key for key in keys if key not in KEYS), None)
    if unknown is not None:
        remedy = f"{did_you_mean(unknown, KEYS, 0.5)}Known: {', '.join(KEYS)}."
        raise InvalidSpec("a key must be one that such a file has", f"`{unknown}`", f"'{path}'", remedy)
    if all(value in ([], {}, "") for value in keys.values()):
        empty = "comments alone" if text.strip() else "an empty file"
        got = f"empty keys alone: {', '.join(keys)}" if keys else empty
        raise InvalidSpec("the file must say something", got, f"'{path}'", _REMEDY)
    return keys


def _check_lengths_of_keys(text: str, path: Path) -> None:
    long = _LONG_KEY.search(text)
    if long is not None:
        got = f"one that begins `{long[0].strip()[:40]}`"
        raise InvalidSpec(f"a key must have at most {_N_PARTS_MAX} parts", got, f"'{path}'", _REMEDY)


def text_of(path: Path) -> str:
    """Return the text of a file that is read as a whole.

    * Raises `OSError`, `UnicodeDecodeError`: the file cannot be read, or is no text.
    * Raises `InvalidSpec`: the file is longer than any such file, or it is a pipe from which nothing comes.
    """
    # Some editors begin a file with a mark of the order of bytes.
    with TextIOWrapper(BytesIO(_content(path)), encoding="utf-8-sig") as file:
        text = file.read(N_CHARACTERS_MAX + 1)
    if len(text) > N_CHARACTERS_MAX:
        raise InvalidSpec(
            f"the file must have at most {N_CHARACTERS_MAX:,} characters", "more", f"'{path}'", "Name another file."
        )
    return text


def _content(path: Path) -> bytes:
    """Return the first bytes of a file: enough to see whether it has more characters than allowed."""
    pieces, n_left = list[bytes](), 4 * (N_CHARACTERS_MAX + 1)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe is opened though nobody writes it
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while n_left > 0:
            if not poll.poll(_SILENT_S_MAX * 1e3):
                got = f"a pipe from which nothing has come for {span(_SILENT_S_MAX)}"
                raise InvalidSpec("the file must be one that can be read", got, f"'{path}'", "Name a file.")
            piece = os.read(fd, min(n_left, 1 << 20))
            if not piece:
                break
            pieces.append(piece)
            n_left -= len(piece)
    finally:
        os.close(fd)
    return b"".join(pieces)
