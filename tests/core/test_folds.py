"""Methods that fold messages are listed by their names."""

import pytest

from punctual.core.events import GrantFailed, JobStarted
from punctual.core.lifecycle import folds_in


def test_a_fold_is_that_of_the_kind_in_its_name() -> None:
    assert folds_in({"_fold_job_started": print, "_fold_grant_failed": repr, "fold": str}) == {
        JobStarted: print,
        GrantFailed: repr,
    }


def test_a_fold_of_a_kind_that_there_is_not_is_an_error() -> None:
    with pytest.raises(KeyError, match="_fold_job_stared"):
        folds_in({"_fold_job_stared": print})
