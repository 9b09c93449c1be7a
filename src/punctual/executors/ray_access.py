"""Check whether a Ray cluster asks for a token, through a process without one.

No client can read in which mode a cluster is, and a client that has a token is let in either way.
"""

import os
import socket
import subprocess
import sys

from punctual.core.errors import InvalidSpec

_CLIENT_SCHEME = "ray://"
OPEN_TO_ALL = "whoever reaches it can run programs as the user that started it"
#: Exit statuses of the process.
_LET_IN, _REFUSED, _NO_ANSWER = 0, 10, 11
#: Seconds for an answer, on a machine whose cores are all in use.
_ANSWER_S_MAX = 10.0


def asks_for_token(address: str) -> bool | None:
    """Whether the cluster rejects clients without a token; None: there is no answer.

    `address`: ``HOST:PORT`` of its head, ``ray://HOST:PORT``, or ``auto``: where Ray's own commands look.
    """
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-P", "-m", "punctual.executors.ray_access", address]
    quiet = subprocess.DEVNULL
    try:
        # Seconds for the process, on a machine whose cores are all in use.
        done = subprocess.run(
            command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60.0, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return {_LET_IN: False, _REFUSED: True}.get(done.returncode)


def check_asks_for_token(address: str) -> None:
    """Raise `InvalidSpec` unless the cluster rejects clients without a token."""
    asks = asks_for_token(address)
    if not asks:
        raise InvalidSpec(
            "a Ray cluster must ask for a token",
            "no answer" if asks is None else f"one that asks for none: {OPEN_TO_ALL}",
            f"address '{address}'",
            "Start it with one (`ray get-auth-token --generate`, then `RAY_AUTH_MODE=token ray start --head`), or accept "
            "that (`punctual up --allow-unauthenticated-ray`).",
        )


def _query(address: str) -> int:
    """Query the cluster without a token; the exit status tells the result."""
    if address == "auto":
        from ray._private.services import get_ray_address_from_environment

        try:
            address = get_ray_address_from_environment(address, None)
        except ConnectionError:
            return _NO_ANSWER
    place = address.removeprefix(_CLIENT_SCHEME)
    name, _, port = place.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), _ANSWER_S_MAX).close()  # else Ray waits for 40 s
    except (OSError, ValueError):
        return _NO_ANSWER
    if place != address:
        return _query_client_server(place)
    # There is no public way to ask without being a part of the cluster.
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError, RayError

    try:
        GcsClient(address=address).internal_kv_exists(b"punctual", None, timeout=_ANSWER_S_MAX)
    except AuthenticationError:
        return _REFUSED
    except RayError:
        return _NO_ANSWER
    return _LET_IN


def _query_client_server(address: str) -> int:
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated.ray_client_pb2 import ClusterInfoRequest, ClusterInfoType
    from ray.core.generated.ray_client_pb2_grpc import RayletDriverStub

    request = ClusterInfoRequest(type=ClusterInfoType.PING)
    client = [("client_id", "punctual")]
    try:
        RayletDriverStub(init_grpc_channel(address)).ClusterInfo(request, timeout=_ANSWER_S_MAX, metadata=client)
    except grpc.RpcError as error:
        return _REFUSED if error.code() is grpc.StatusCode.UNAUTHENTICATED else _NO_ANSWER
    return _LET_IN


if __name__ == "__main__":
    sys.exit(_query(sys.argv[1]))
