"""What is said where the libraries of an extra are missing."""

from importlib.util import find_spec

from punctual.core.errors import InvalidSpec


def check_extra(extra: str, who: str, *libraries: str) -> None:
    """Refuse to begin what could not be finished; imports none of `libraries`.

    Parameters
    ----------
    extra
        What brings them, as `pip` takes it: ``"sim"``.
    who
        What needs them: ``"a study"``.

    Raises
    ------
    InvalidSpec
        One of `libraries` is not installed.
    """
    missing = [name for name in libraries if not _is_there(name)]
    if missing:
        raise InvalidSpec(
            f"{who} needs the libraries of the extra `{extra}`",
            f"an installation without {', '.join(missing)}",
            "this Python environment",
            f"Install them with `pip install 'punctual[{extra}]'`.",
        )


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # a package that it would be in
        return False
