"""The stored tables: what they say of their figures follows from these, by the code that there is."""

from itertools import groupby

import pytest
from _common import on_record

from punctual.papers.decor_nn import experiment as decor
from punctual.papers.elastic_mip import experiment as elastic_mip
from punctual.papers.elasticflow import experiment as elasticflow
from punctual.papers.reproduction import Row
from punctual.papers.smd import experiment as smd

STORED = on_record("reproduce")


def rows_of(name: str) -> list[Row]:
    return [Row(row["what"], row["published"], row["obtained"], row["why"]) for row in STORED[name]["rows"]]


@pytest.mark.parametrize("name", ["decor-nn", "smd", "elasticflow"])
def test_the_notes_are_those_of_the_code(name: str) -> None:
    assert STORED[name]["note"] == {"decor-nn": decor, "smd": smd, "elasticflow": elasticflow}[name].NOTE


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_why_the_mean_of_decor_differs(device: str) -> None:
    mine = [row for row in rows_of("decor-nn") if row.what.startswith(f"{device}, decor-pi, ")]
    changed = [row for row in mine if "1.5 and 1.8" in row.what]
    cells = [row for row in mine if row.published is None and row not in changed]
    assert mine[0] == decor.headline(device, cells, changed)
    assert mine[0].why.startswith("not known"), "no setting comes near the published mean"


def test_why_elasticflow_meets_more_or_fewer() -> None:
    for _, rows in groupby(rows_of("elasticflow"), key=lambda row: row.what.partition(": ")[0]):
        trace = list(rows)
        assert elasticflow.explained(trace) == trace


def test_what_is_said_of_all_settings_of_the_elastic_allocator() -> None:
    settings = [row for row in rows_of("elastic-mip") if row.published is None]
    assert STORED["elastic-mip"]["note"] == elastic_mip.NOTE.format(ranges=elastic_mip.ranges(settings))


def test_which_reading_of_smd_is_nearest() -> None:
    rows = rows_of("smd")
    for kind in smd.KINDS:
        readings = [row for row in rows if row.what.startswith(f"{kind}, t_f of a ")]
        for row in rows:
            _, _, figure = row.what.partition(": ")
            if row.what.startswith(f"{kind}, ") and "nearest: " in row.why:
                key = f"{figure}, capacity {row.what.split()[2][:-1]}" if figure == "share of limits used" else figure
                assert row.why.endswith(smd.nearest_reading(readings, key))
