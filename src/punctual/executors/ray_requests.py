"""Process that asks a Ray cluster for machines, see `punctual.executors.ray_machines`, or tells its address.

No process that must not end loads Ray.
"""

import subprocess
import sys


def head_address(address: str) -> str:
    """Return HOST:PORT of a cluster's head, given as for `ray.init`; raises `ConnectionError` if none runs here."""
    if address not in ("", "auto"):
        return address
    command = [sys.executable, "-P", "-m", "punctual.executors.ray_requests"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError("the address of Ray's head is not known: Ray has not answered") from None
    if done.returncode or not done.stdout.strip():
        raise ConnectionError("the address of Ray's head is not known: none runs here; name it (`--address HOST:PORT`)")
    return done.stdout.split()[-1]


def _found_address() -> int:
    from ray._private.services import get_ray_address_from_environment  # there is no public way

    try:
        print(get_ray_address_from_environment("auto", None))  # noqa: T201 -- it is the answer
    except ConnectionError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_found_address())
