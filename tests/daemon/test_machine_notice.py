"""The notice that a machine is taken away, which all agents on it read."""

import os

import pytest

from punctual.daemon import machine_notice
from punctual.daemon.machine_notice import MachineNotice


def test_a_notice_holds_until_it_is_withdrawn_or_the_machine_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MachineNotice().ends_at() is None
    MachineNotice().record(5.0)
    assert MachineNotice().ends_at() == 5.0
    monkeypatch.setattr(machine_notice, "boot_id", lambda: "another")
    assert MachineNotice().ends_at() is None
    MachineNotice().record(7.0)
    assert MachineNotice().ends_at() == 7.0
    MachineNotice().record(None)
    assert MachineNotice().ends_at() is None
    MachineNotice().record(None)


def test_a_notice_is_of_one_of_the_machines_that_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    MachineNotice().record(5.0)
    fields = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((fields.sysname, "another", *fields[2:])))
    assert MachineNotice().ends_at() is None
