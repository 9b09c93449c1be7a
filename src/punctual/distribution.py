"""Punctual as a distribution: its name, its version, and the libraries of its extras."""

import re
import shlex
from importlib.util import find_spec

#: Name of the distribution. `punctual` is the name of another program on PyPI.
NAME = "punctual-training"
__version__ = "0.1.0"

#: Extra -> modules of the libraries that it brings.
EXTRAS = {
    "torch": ("torch", "safetensors", "sklearn"),
    "report": ("matplotlib",),
    "sim": ("matplotlib", "polars", "scipy", "tomli_w"),
    "service": ("fastapi", "uvicorn"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "ray": ("cryptography", "ray"),
}
_REQUIREMENT = re.compile(
    r"(?P<library>[\w.-]+(?:\[[\w,.-]*\])?)[^;]*;(?:.* and)?\s*extra == ['\"](?P<extra>[\w-]+)['\"]"
)


def missing_modules(extra: str) -> list[str]:
    """Modules of `extra` that are not installed; imports none of them."""
    return [module for module in EXTRAS[extra] if not _is_installed(module)]


def install_command(*extras: str) -> str:
    """Return the command that installs the libraries of `extras`, as this distribution declares them.

    It names the libraries themselves: Punctual is on no index, so that its own name would install something else.
    """
    from importlib.metadata import PackageNotFoundError, requires  # takes longer than all the rest of this module

    try:
        declared = [_REQUIREMENT.fullmatch(requirement) for requirement in requires(NAME) or ()]
    except PackageNotFoundError:  # run from its folder, where nothing was installed
        return shlex.join(["pip", "install", f".[{','.join(extras)}]"])
    libraries = [match["library"] for match in declared if match is not None and match["extra"] in extras]
    return shlex.join(["pip", "install", *dict.fromkeys(libraries)])


def check_extras(user: str, *extras: str) -> None:
    """Refuse to begin what could not be finished.

    Parameters
    ----------
    user
        Name of the feature that needs the libraries of `extras`: ``"a study"``.

    Raises
    ------
    InvalidSpec
        One of the libraries is not installed.
    """
    # Imported here: this module is loaded with `import punctual`, in every training.
    from punctual.core.errors import InvalidSpec

    missing = dict.fromkeys(module for extra in extras for module in missing_modules(extra))
    if missing:
        raise InvalidSpec(
            f"{user} needs the libraries of the extra{'s' * (len(extras) > 1)} {' and '.join(f'`{extra}`' for extra in extras)}",
            f"an installation without {', '.join(missing)}",
            "this Python environment",
            f"Install them: `{install_command(*extras)}`.",
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that it would be in
        return False
