"""The libraries of the extra `sim`, and what is said where they are missing."""

from importlib.util import find_spec

from punctual.core.errors import InvalidSpec


def check_extra(*libraries: str) -> None:
    """Refuse to begin what could not be finished.

    Raises
    ------
    InvalidSpec
        One of `libraries` is not installed.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise InvalidSpec(
            "a study needs the libraries of the extra `sim`", f"an installation without {', '.join(missing)}",
            "this Python environment", "Install them with `pip install 'punctual[sim]'`.",
        )  # fmt: skip
