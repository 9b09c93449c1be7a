"""What a simulation leaves does not stay."""

import weakref

from punctual.sim.garbage import rare_collections


class Ring:
    def __init__(self) -> None:
        self.itself = self


def test_the_garbage_of_a_simulation_is_gone_when_the_next_has_begun() -> None:
    with rare_collections():
        left = weakref.ref(Ring())
    with rare_collections():
        assert left() is None
