"""A head of Ray with an autoscaler, whose nodes are processes of this machine; made for tests of who asks it."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.plants.ray_machines import RAY, free_port
from tests.waiting import wait_until

from punctual.executors.local.job_signals import descendants

#: Nodes of a market that the autoscaler starts at most.
N_NODES_MAX = 2
#: Ray's own provider of such nodes, which knows the head by this id.
_MODULE = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
_HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"


class RayWithAutoscaler:
    """The head, in a folder whose path is short."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _, port = self.address.split(":")
        config = self._folder / "autoscaler.json"
        config.write_text(json.dumps(self._config()))
        environment = {
            **os.environ,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": _HEAD,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD,
        }
        command = [
            str(RAY),
            "start",
            "--head",
            "--block",
            f"--port={port}",
            "--node-ip-address=127.0.0.1",
            "--num-cpus=0",
        ]
        command += [
            "--include-dashboard=false",
            "--include-log-monitor=false",
            f"--temp-dir={self._folder}",
            f"--autoscaling-config={config}",
        ]
        command += ["--disable-usage-stats", f"--ray-client-server-port={free_port()}"]
        log = self._folder / "head.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        wait_until(lambda: b"Ray runtime started" in log.read_bytes() or self._process.poll() is not None)
        assert self._process.poll() is None, log.read_text()

    def kill(self) -> None:
        """End the head and all nodes."""
        if self._process is None:
            return
        below = descendants(self._process.pid)
        for pid in (self._process.pid, *below):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _config(self) -> dict[str, object]:
        resources = {"CPU": 1, "object_store_memory": 80_000_000}
        kinds = {
            market: {
                "resources": resources,
                "labels": {"ray.io/market-type": market},
                "node_config": {},
                "min_workers": 0,
                "max_workers": N_NODES_MAX,
            }
            for market in ("spot", "on-demand")
        }
        head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
        empty = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
        return {
            "cluster_name": "tests",
            "max_workers": 4,
            "idle_timeout_minutes": 60,
            "provider": {
                "type": "external",
                "module": _MODULE,
                "gcs_address": self.address,
                "head_node_id": _HEAD,
                "launch_multiple": True,
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
            },
            "auth": {},
            "file_mounts": {},
            "cluster_synced_files": [],
            "rsync_exclude": [],
            "rsync_filter": [],
            **{f"{name}_commands": [] for name in empty},
            "head_node_type": "ray.head.default",
            "available_node_types": {"ray.head.default": head, **kinds},
        }
