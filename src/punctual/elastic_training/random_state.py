"""Random state of a virtual rank at a step, whatever worker runs it."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_BITS_64 = 0xFFFF_FFFF_FFFF_FFFF


def mixed(*numbers: int) -> int:
    """Mix several numbers into one seed of 63 bits; nearby numbers give unrelated seeds."""
    state = 0
    for number in numbers:
        # The finaliser of splitmix64: each bit of the sum changes half of the bits of the result.
        state = (state + number + 0x9E37_79B9_7F4A_7C15) & _BITS_64
        state = ((state ^ (state >> 30)) * 0xBF58_476D_1CE4_E5B9) & _BITS_64
        state = ((state ^ (state >> 27)) * 0x94D0_49BB_1331_11EB) & _BITS_64
        state ^= state >> 31
    return state >> 1


def seed_all(*numbers: int) -> None:
    """Seed Python, and torch on all devices and numpy if they are loaded."""
    seed = mixed(*numbers)
    random.seed(seed)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)


def generators_of(owner: object) -> list[Any]:
    """Return the generators of random numbers that an object, as a dataset, has in its attributes, and in theirs."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    kinds = (random.Random, torch.Generator, *((numpy.random.Generator, numpy.random.RandomState) if numpy else ()))
    generators: list[Any] = []
    seen: set[int] = set()
    ways: list[Any] = [owner]
    # Far more than a dataset with its transforms is made of; of many samples the first ones are enough.
    while ways and len(seen) < 1000:
        part = ways.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, kinds):
            generators.append(part)
        elif isinstance(part, list | tuple | dict):
            ways += [*(part.values() if isinstance(part, dict) else part)][:50]
        elif not isinstance(part, type | ModuleType):
            ways += getattr(part, "__dict__", {}).values()
    return generators


def reseed(generator: Any, *numbers: int) -> None:
    """Seed a generator of Python, torch or numpy."""
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        bits.state = type(bits)(mixed(*numbers)).state
    elif hasattr(generator, "manual_seed"):
        generator.manual_seed(mixed(*numbers))
    else:
        generator.seed(mixed(*numbers) & 0xFFFF_FFFF)


@contextmanager
def apart() -> Iterator[None]:
    """Restore the random state at the end: what is drawn inside, by some workers alone, changes nothing outside."""
    numpy, torch = sys.modules.get("numpy"), sys.modules["torch"]
    python, others = random.getstate(), numpy and numpy.random.get_state()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(others)
