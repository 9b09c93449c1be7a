"""What policies say that need a library of an extra where it is missing."""

from importlib.util import find_spec

from punctual.core.errors import InvalidSpec


def check_numpy(policy: str) -> None:
    """Raise `InvalidSpec` where NumPy is not installed; a policy can be listed without it, but not used."""
    check_libraries(policy, "numpy")


def check_libraries(policy: str, *libraries: str) -> None:
    """The same for any libraries of the extra `sim`."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise InvalidSpec(
            f"a policy that solves programmes needs {' and '.join(libraries)}",
            f"an installation without {' and '.join(missing)}", f"policy '{policy}'",
            "Install them with `pip install 'punctual[sim]'`.",
        )  # fmt: skip
