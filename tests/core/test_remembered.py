"""What is remembered of objects is computed once for each, and is never that of another object."""

from punctual.core.identity_cache import IdentityCache


def test_each_object_is_asked_about_once_and_equal_ones_are_others() -> None:
    asked: list[tuple[int, ...]] = []

    def total(of: tuple[int, ...]) -> int:
        asked.append(of)
        return sum(of)

    remembered = IdentityCache(total)
    one, other = (tuple(range(2, 4)) for _ in range(2))
    assert one is not other
    assert [remembered(one), remembered(one), remembered(other), *remembered.each([other, one])] == [5] * 5
    assert len(asked) == 2


def test_no_more_is_remembered_than_was_allowed() -> None:
    asked: list[int] = []
    remembered: IdentityCache[list[int], None] = IdentityCache(lambda of: asked.append(len(of)), n_max=2)
    objects: list[list[int]] = [[], [0], [0, 0]]
    for of in [*objects, objects[2], objects[0]]:
        remembered(of)
    assert asked == [0, 1, 2, 0]
