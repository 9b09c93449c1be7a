"""Streams of chance, each with a name, so that one draw more in one place changes nothing anywhere else."""

from decimal import Decimal
from hashlib import blake2b

from punctual.sim.traces.draw import Draw

_N_UNIFORMS = 12


def stream(seed: int, kind: str, name: str) -> Draw:
    """Return the stream of draws of one kind for one job or node; equal in every process and on every platform."""
    text = f"{seed}\0{kind}\0{name}".encode("utf-8", "surrogatepass")
    return Draw(int.from_bytes(blake2b(text, digest_size=8).digest(), "big"))


def log_normal(draw: Draw, sigma: float, mean_log: float = 0.0) -> float:
    """A factor whose logarithm has mean `mean_log` and standard deviation `sigma`.

    The logarithm is a sum of uniforms, which no platform adds differently, and so ends at six standard deviations;
    the power is taken in decimals, because the last digit of a platform's exponential function is its own.
    """
    normal = -_N_UNIFORMS / 2
    for _ in range(_N_UNIFORMS):
        normal += draw.uniform(0.0, 1.0)
    return float(Decimal(mean_log + sigma * normal).exp())
