"""Options of a service for OpenTelemetry, read without loading it."""

import os
from typing import Literal
from urllib.parse import urlsplit

from punctual.core.errors import InvalidSpec
from punctual.distribution import check_extras

Signal = Literal["traces", "metrics"]
_SIGNALS: tuple[Signal, ...] = ("traces", "metrics")
_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
#: The only one that the extra brings; it is also the default of the library.
_HTTP = "http/protobuf"


def is_configured() -> bool:
    """Whether the environment names a collector, and does not forbid its use."""
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not is_disabled and any(os.environ.get(name) for name in _variables(_ENDPOINT))


def is_exported(signal: Signal) -> bool:
    """Whether a signal is wanted: each is, unless the environment disables it."""
    return os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() != "none"


def check_telemetry() -> None:
    """Raise `InvalidSpec` if libraries are missing, or the environment asks for more than they can do."""
    check_extras("OpenTelemetry", "otel")
    for name in _variables(_PROTOCOL):
        _check(
            name,
            os.environ.get(name, "") in ("", _HTTP),
            f"be {_HTTP}",
            "Leave it out, and name the collector's HTTP port (4318).",
        )
    for name in (f"OTEL_{signal.upper()}_EXPORTER" for signal in _SIGNALS):
        _check(name, os.environ.get(name, "").strip() in ("", "otlp", "none"), "be otlp or none", "Leave it out.")
    for name in _variables(_ENDPOINT):
        url = urlsplit(os.environ.get(name, ""))
        is_url = url.scheme in ("http", "https") and bool(url.hostname)
        _check(name, is_url or not os.environ.get(name), "be a URL", "Write for example http://localhost:4318.")


def _variables(name: str) -> list[str]:
    """Return a variable, and those that replace it for one signal."""
    return [name, *(name.replace("OTLP_", f"OTLP_{signal.upper()}_") for signal in _SIGNALS)]


def _check(name: str, holds: bool, must: str, remedy: str) -> None:
    if not holds:
        raise InvalidSpec(f"{name} must {must}", f"'{os.environ[name]}'", "OpenTelemetry", remedy)
