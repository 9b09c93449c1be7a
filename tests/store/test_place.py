"""URLs of stores: which there are, and how they are told without their passwords."""

import pytest

from punctual.core.errors import InvalidSpec
from punctual.store.place import StorePlace, check_url, passwords_of, shown_url, without_password

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db:5432/jobs", "postgresql://me:***@db:5432/jobs"),
        ("postgresql://me@db/jobs", "postgresql://me@db/jobs"),
        (f"postgres://db/jobs?user=me&password={SECRET}", "postgres://db/jobs?user=me&password=***"),
        (f"postgresql://me:a{SECRET}:b@[::1]/jobs", "postgresql://me:***@[::1]/jobs"),
        (f"postgresql:///jobs?host=/run/db&sslpassword={SECRET}", "postgresql:///jobs?host=/run/db&sslpassword=***"),
        (f"postgresql://me:{SECRET}@db:port/jobs", "***"),
    ],
)
def test_a_password_is_not_told(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    place = StorePlace(url=url, journal="service-1")
    assert SECRET not in f"{place} {place!r} {place.shown}"
    assert StorePlace.of(place.told()) == place


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://me:{SECRET}@db/jobs",
        "postgresql://db",
        "postgresql:/jobs",
        f"postgresql://me:{SECRET}@db:port/jobs",
        "",
        "sqlite:///x",
    ],
)
def test_what_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match="`--store` must be") as refused:
        check_url(url)
    assert refused.value.remedy
    assert SECRET not in str(refused.value)


def test_another_password_is_the_same_store() -> None:
    one, other = f"postgresql://me:{SECRET}@db/jobs", "postgresql://me:new@db/jobs"
    assert without_password(one) == without_password(other) == without_password("postgresql://me@db/jobs")
    assert without_password(one) != without_password("postgresql://me@db/others")
    assert passwords_of(one) == [SECRET]
