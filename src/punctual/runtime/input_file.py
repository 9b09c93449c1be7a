"""The TOML file that a user writes: jobs, the cluster they run on, and what of them is to be simulated; any of these alone too."""

import tomllib
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec, did_you_mean

#: What only a simulation asks for.
SIMULATED_KEYS = ("policies", "seeds", "trace", "deadlines", "scaling", "physics", "controller")
KEYS = ("job", "cluster", *SIMULATED_KEYS)

#: More than anybody writes by hand, and little enough to be held in memory.
N_CHARACTERS_MAX = 16_000_000

_REMEDY = (
    "Tables `[[job]]` are jobs, tables `[[cluster]]` groups of nodes; the reference of scenarios has the other keys."
)


def keys_in(path: Path) -> dict[str, Any]:
    """The keys of a file, as they stand there.

    Raises
    ------
    InvalidSpec
        The file cannot be read, is too long or no TOML, or has a key that no such file has.
    """
    try:
        keys = tomllib.loads(text_of(path))
    except OSError as error:
        raise InvalidSpec(
            "the file must be one that can be read", error.strerror or str(error), f"'{path}'", "Check its name."
        ) from None
    except InvalidSpec:
        raise
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number without end; lists in lists without end
        raise InvalidSpec("the file must be TOML", str(error), f"'{path}'", _REMEDY) from None
    unknown = next((key for key in keys if key not in KEYS), None)
    if unknown is not None:
        remedy = f"{did_you_mean(unknown, KEYS, 0.5)}Known: {', '.join(KEYS)}."
        raise InvalidSpec("a key must be one that such a file has", f"`{unknown}`", f"'{path}'", remedy)
    return keys


def text_of(path: Path) -> str:
    """What a file holds that is read as a whole.

    Raises
    ------
    OSError, UnicodeDecodeError
        It cannot be read, or is no text.
    InvalidSpec
        It is longer than any such file.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(N_CHARACTERS_MAX + 1)
    if len(text) > N_CHARACTERS_MAX:
        raise InvalidSpec(
            f"the file must have at most {N_CHARACTERS_MAX:,} characters", "more", f"'{path}'", "Name another file."
        )
    return text
