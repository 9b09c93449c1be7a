"""Small files in each format: how it is recognised, what comes out, and what becomes of bad rows."""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.sim.traces import TraceJob, formats, read
from punctual.sim.traces.bad_rows import N_KEPT, BadRows
from punctual.sim.traces.source import Head, Source
from punctual.sim.traces.trace import FAMILY

GAVEL = "ResNet-50 (batch size 64)\tpython3 main.py -b 64\timagenet\t--steps\t1\t2931\t2\t1\t{slo}\t12.5"
SHOCKWAVE = "A3C\tpython3 main.py\trl\t--steps\t1\t500\t1\tgns\t2\t{slo}\t100\t7"
PAI_JOBS = "j1,i1,u1,Terminated,100.0,900.0\nj2,i2,u2,Failed,200.0,\nj3,i3,u1,Waiting,300.0,\n"
PAI_ROLES = (
    "j1,ps,1.0,Terminated,150.0,880.0,600.0,10.0,,\n"
    "j2,worker,1.0,Failed,210.0,260.0,400.0,29.296875,50.0,T4\n"
    "j1,worker,2.0,Terminated,160.0,890.0,400.0,20.0,50.0,MISC\n"
)

#: One file in each format, made up.
SMALL = {
    "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,2,132.0,11cb48\n",
    "philly-json": '[{"status": "Pass", "jobid": "a1", "vc": "v", "attempts": []}]',
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "17,u1,vc1,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:45:36,189,60\n"
    ),
    "pai-2020": PAI_JOBS,
    "pai-2023": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p1,4000,1024,1,220,,BE,Running,100,400,110\n"
        "p2,88000,2048,8,1000,V100M16|V100M32,LS,Succeeded,120,320,120\n"
        "p3,4000,1024,1,1000,,LS,Pending,130,140,\n"
    ),
    "itp": "job_id,submission_time,duration,num_gpu\na,1932025,2429,64",
    "elasticflow": (
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "0,100,77215,resnet50,4526,256,1,3930,0\n1,200,5,vgg16,210,64,1,10,1\n"
    ),
    "pollux": "name,time,application,num_replicas,batch_size\nncf-0,29,ncf,1,32768\n",
    "gavel": GAVEL.format(slo="-1.000000") + "\n",
    "shockwave": SHOCKWAVE.format(slo="1.2") + "\n",
    "chronus": (
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
        "best_effort,job_type\n"
        "0,vc1,1,100,5,vgg16,96,5,159-189-229,10-8-5,0,soft\n1,vc1,0,10,5,vgg16,20,5,10,10,1,best\n"
    ),
    "hydra": ",job_name,norm_job_submit_time,ddl,A100,T4\n0,x,0,inf,10.0,30.0\n1,y,0,50.0,20.0,60.0\n",
    "muri": (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
        "resource_time_1,resource_time_2,priority\n0,4,1456000,10,bert,4,1900,11174000,190,0.5,163,18,0\n"
    ),
    "rubick": (
        "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
        "vit-0,5,3163.09,vit,2,16,0,zero-dp,37239,1"
    ),
    "arena": (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,gpu_type\n"
        "f9,1000,2622,wide_resnet__500M,1500.5,256,2,a10\n"
    ),
}


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Path]:
    """A file of each format."""
    paths = {name: tmp_path / f"{name}.txt" for name in SMALL}
    for name, path in paths.items():
        path.write_text(SMALL[name], encoding="utf-8")
    (tmp_path / "pai_task_table.csv").write_text(PAI_ROLES, encoding="utf-8")
    return paths


def jobs_of(path: Path) -> list[TraceJob]:
    return list(read(path))


def text_file(folder: Path, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_text(text, encoding="utf-8")
    return path


class Strange:
    """A format of another distribution."""

    def recognises(self, head: Head) -> bool:
        return head.first == "strange"

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        return (TraceJob(id=line.strip(), submitted_at=0.0) for i, line in source.lines() if i > 1)


def test_a_strangers_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoint("strange", f"{__name__}:Strange", f"punctual.{FAMILY}")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Strange)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [offered] if group == offered.group else [])
    trace = read(text_file(tmp_path, "strange\na\nb\n"))
    assert trace.format == "strange"
    assert [job.id for job in trace] == ["a", "b"]


def test_every_format_has_an_example_here() -> None:
    assert formats() == sorted([*SMALL, "live-journal"])  # a database: see `tests.sim.test_replay`


@pytest.mark.parametrize("name", SMALL)
def test_a_reader_is_a_class_of_its_formats_name(name: str) -> None:
    found = registry.load(FAMILY, name)
    assert found.__name__ == registry.class_name(name)
    assert found.__doc__


@pytest.mark.parametrize("name", SMALL)
def test_a_file_is_recognised_by_one_reader_and_no_other(name: str) -> None:
    head = Head(tuple(SMALL[name].splitlines()))
    assert [other for other in formats() if registry.load(FAMILY, other)().recognises(head)] == [name]


@pytest.mark.parametrize("name", SMALL)
def test_a_compressed_file_reads_the_same(name: str, small: dict[str, Path], tmp_path: Path) -> None:
    compressed = tmp_path / "compressed"
    compressed.write_bytes(gzip.compress(small[name].read_bytes()))
    trace = read(compressed)
    assert trace.format == name
    assert list(trace) == jobs_of(small[name])


def test_philly_csv(small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["philly-csv"])
    assert job == TraceJob(id="philly-2", submitted_at=1_507_532_515.0, n_gpus=2, duration_s=66.0, user="11cb48")


def philly(*attempts: dict[str, object], **others: object) -> dict[str, object]:
    known = {"status": "Pass", "vc": "ee9e8c", "jobid": "app_1", "submitted_time": "2017-10-07 01:11:39", "user": "u"}
    return {**known, "attempts": list(attempts), **others}


def attempt(start: str | None, end: str | None, *n_gpus: int) -> dict[str, object]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(n)]} for i, n in enumerate(n_gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


@pytest.mark.parametrize("indent", [None, 4])
def test_philly_json_counts_the_time_of_all_attempts(tmp_path: Path, indent: int | None) -> None:
    twice = philly(
        attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
        attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 8, 4),
        attempt("2017-10-08 01:13:30", None, 16),
    )
    never = philly(attempt(None, "None", 1), jobid="app_2")
    anonymous = philly(attempt("2017-10-07 01:12:09", "2017-10-07 01:12:10", 1), jobid="app_3", user=None)
    path = text_file(tmp_path, json.dumps([twice, never, anonymous], indent=indent))
    trace = read(path)
    first, last = trace
    assert (first.id, first.n_gpus, first.duration_s, first.user) == ("app_1", 12, 74.0 + 3600.0, "u")
    assert first.submitted_at == 1_507_338_699.0
    assert (last.id, last.user) == ("app_3", "ee9e8c")
    assert trace.bad.n_rows == 1
    assert "no attempt" in trace.bad.rows[0].reason
    before = path.read_text().index("app_2")
    lines_before = path.read_text().rindex("{", 0, path.read_text().rindex('"status"', 0, before))
    assert trace.bad.rows[0].line == path.read_text().count("\n", 0, lines_before) + 1


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"attempts": [None]}, "`attempts` must hold objects"),
        ({"attempts": [{**attempt("2017-10-07", "2017-10-08"), "detail": ["x"]}]}, "`detail` must hold objects"),
        ({"submitted_time": "0001-01-01T00:00:00+01:00"}, "must be a date"),
    ],
)
def test_an_odd_row_of_philly_json_is_a_bad_one(tmp_path: Path, odd: dict[str, object], reason: str) -> None:
    whole = philly(attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 1))
    trace = read(text_file(tmp_path, json.dumps([{**whole, **odd}, whole])))
    assert [job.id for job in trace] == ["app_1"]
    assert trace.bad.n_rows == 1
    assert reason in trace.bad.rows[0].reason


def test_philly_json_is_read_in_pieces(tmp_path: Path) -> None:
    run = attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8, 8, 8, 8)
    path = text_file(tmp_path, json.dumps([philly(run, jobid=f"app_{i}") for i in range(2_000)]))
    assert path.stat().st_size > 10 * 65_536
    assert [job.id for job in jobs_of(path)] == [f"app_{i}" for i in range(2_000)]


@pytest.mark.parametrize("broken", ['{"jobid": "x", ', "oops", "[7]", '{"jobid": ' + "[" * 50_000])
def test_broken_json_is_a_bad_row(tmp_path: Path, broken: str) -> None:
    whole = json.dumps(philly(attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 1)))
    trace = read(text_file(tmp_path, f"[{whole},\n\n{broken}"))
    assert [job.id for job in trace] == ["app_1"]
    assert (trace.bad.n_rows, trace.bad.rows[0].line) == (1, 3)


def test_helios(small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["helios"])
    assert (job.id, job.n_gpus, job.cores, job.duration_s, job.user) == ("17", 4, 16, 189, "u1")
    assert job.submitted_at == 1_591_728_087.0


def test_pai_2020_joins_its_tables(small: dict[str, Path]) -> None:
    trace = read(small["pai-2020"])
    one, two = trace
    assert (one.id, one.submitted_at, one.duration_s, one.user) == ("j1", 100.0, 740.0, "u1")
    assert (one.n_gpus, one.cores, one.memory_bytes, one.device) == (1.0, 14.0, 50 * 2**30, "MISC")
    assert (two.n_gpus, two.duration_s, two.device) == (0.5, 50.0, "T4")
    assert two.memory_bytes == 30_000 * 2**20
    assert [(row.line, trace.bad.n_rows) for row in trace.bad.rows] == [(3, 1)]


def test_pai_2020_with_a_header_added(small: dict[str, Path]) -> None:
    header = "job_name,inst_id,user,status,start_time,end_time\n"
    expected = jobs_of(small["pai-2020"])
    small["pai-2020"].write_text(header + PAI_JOBS)
    assert jobs_of(small["pai-2020"]) == expected


def test_pai_2020_needs_both_tables(small: dict[str, Path], tmp_path: Path) -> None:
    roles = tmp_path / "pai_task_table.csv"
    with pytest.raises(InvalidSpec, match="job table with pai_task_table"):
        jobs_of(roles)
    roles.unlink()
    with pytest.raises(InvalidSpec, match="job table with pai_task_table"):
        jobs_of(small["pai-2020"])


def test_a_bad_row_of_the_other_table_names_that_table(small: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text(PAI_ROLES + "j1,worker,two,Terminated,1,2,3,4,5,T4\n")
    trace = read(small["pai-2020"])
    one, _ = trace
    assert one.n_gpus == 1.0
    assert (Path(trace.bad.rows[0].path).name, trace.bad.rows[0].line) == ("pai_task_table.csv", 4)


def test_pai_2023_has_shares_of_devices(small: dict[str, Path]) -> None:
    trace = read(small["pai-2023"])
    share, whole = trace
    assert (share.n_gpus, share.cores, share.duration_s, share.best_effort) == (0.22, 4.0, 290.0, True)
    assert (whole.n_gpus, whole.memory_bytes, whole.device) == (8, 2 * 2**30, "V100M16|V100M32")
    assert (trace.bad.n_rows, trace.bad.rows[0].line) == (1, 4)


def test_elasticflow_gives_best_effort_jobs_no_deadline(small: dict[str, Path]) -> None:
    strict, best = jobs_of(small["elasticflow"])
    assert (strict.deadline_s, strict.best_effort) == (4426.0, False)
    assert (best.deadline_s, best.best_effort) == (None, True)


def test_gavel_keeps_a_limit_as_a_factor(tmp_path: Path, small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["gavel"])
    assert (job.model_name, job.batch_size, job.n_gpus, job.work_steps) == ("ResNet-50", 64, 2, 2931)
    assert (job.submitted_at, job.parameters) == (12.5, {})
    (limited,) = jobs_of(text_file(tmp_path, GAVEL.format(slo="2.0")))
    assert limited.parameters == {"slack_factor": 2.0}


def test_shockwave_knows_the_duration(small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["shockwave"])
    assert (job.model_name, job.batch_size, job.duration_s, job.deadline_s, job.weight) == ("A3C", None, 100, 120, 2)


def test_chronus_takes_the_first_deadline(small: dict[str, Path]) -> None:
    soft, best = jobs_of(small["chronus"])
    assert (soft.submitted_at, soft.duration_s, soft.deadline_s) == (6000, 96 * 60, 159 * 60)
    assert (best.n_gpus, best.deadline_s, best.best_effort) == (0, None, True)


def test_hydra_takes_the_kinds_of_devices_from_the_header(small: dict[str, Path]) -> None:
    free, due = jobs_of(small["hydra"])
    assert (free.deadline_s, free.device_durations_s) == (None, {"A100": 10.0, "T4": 30.0})
    assert due.deadline_s == 50.0


def test_muri_is_in_milliseconds(small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["muri"])
    assert (job.submitted_at, job.duration_s) == (1456.0, 1.9)
    assert job.parameters == {"iteration_s": 0.19, "storage_s": 0.0005, "cpu_s": 0.163, "gpu_s": 0.018}


@pytest.mark.parametrize("got", ["inf", "1e400"])
def test_a_time_that_is_a_parameter_must_be_finite(small: dict[str, Path], got: str) -> None:
    text = small["muri"].read_text(encoding="utf-8")
    small["muri"].write_text(text.replace("163", got), encoding="utf-8")
    trace = read(small["muri"])
    assert not list(trace)
    assert "`parameters` must be finite numbers" in trace.bad.rows[0].reason


def test_arena_has_absolute_deadlines(small: dict[str, Path]) -> None:
    (job,) = jobs_of(small["arena"])
    assert (job.deadline_s, job.device, job.duration_s) == (500.5, "a10", None)


ITP = "job_id,submission_time,duration,num_gpu\n"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,1,2", "4 columns expected, 3 found"),
        ("a,1,2,1,9", "4 columns expected, 5 found"),
        ("a,x,2,1", "`submission_time` must be a number: got 'x'"),
        ("a,1,,1", "`duration` must not be empty: got nothing"),
        ("a,1,nan,1", "`duration` must not be empty"),
        ("a,inf,2,1", "`submitted_at` must be a time"),
        ("a,1,0,1", "`duration_s` must be above zero: got 0.0 s"),
        ("a,1,inf,1", "`duration_s` must be above zero"),
        ("a,1,2,-1", "`n_gpus` must not be negative: got -1 GPUs"),
        ("a,1,2,1.5", "`num_gpu` must be a whole number: got 1.5"),
        ("a,1,2,inf", "`num_gpu` must be a whole number"),
        (",1,2,1", "`job_id` must not be empty"),
        ('"a,1,2,1', "4 columns expected, 1 found"),
        ("\0\ufffd", "4 columns expected, 1 found"),
    ],
)
def test_a_bad_row_is_skipped_and_told(tmp_path: Path, row: str, reason: str) -> None:
    path = text_file(tmp_path, f"{ITP}good,1,2,1\n\n{row}\nlast,3,4,1\n")
    trace = read(path)
    assert [job.id for job in trace] == ["good", "last"]
    (bad,) = trace.bad.rows
    assert (bad.path, bad.line, trace.bad.n_rows) == (str(path), 4, 1)
    assert reason in bad.reason


def test_a_bad_row_can_be_fatal(tmp_path: Path) -> None:
    trace = read(text_file(tmp_path, f"{ITP}good,1,2,1\nbad,1,2\n"), on_bad="fail")
    jobs = iter(trace)
    assert next(jobs).id == "good"
    with pytest.raises(InvalidSpec) as caught:
        next(jobs)
    assert caught.value.got == "4 columns expected, 3 found"
    assert caught.value.where.endswith("line 3")


def test_all_bad_rows_are_counted_and_some_kept(tmp_path: Path) -> None:
    n_rows = N_KEPT + 7
    trace = read(text_file(tmp_path, ITP + "bad\n" * n_rows))
    assert not list(trace)
    assert (trace.bad.n_rows, len(trace.bad.rows)) == (n_rows, N_KEPT)
    assert not list(trace)
    assert trace.bad.n_rows == n_rows  # counted anew by each reading


@pytest.mark.parametrize("text", ["", "\n\n", "a,b,c\n1,2,3\n", "%PDF-1.4\r\n", "timestamp,duration\n"])
def test_a_file_of_no_known_format(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read(text_file(tmp_path, text))
    assert "philly-csv" in caught.value.must
    assert text.split("\n", maxsplit=1)[0].strip("\r") in caught.value.got or not text.strip()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, must, got in (
        (tmp_path / "none.csv", "readable, whole", "No such file"),
        (tmp_path, "be a file", "a folder"),
    ):
        with pytest.raises(InvalidSpec, match=must) as caught:
            read(path)
        assert caught.value.got.startswith(got)


def test_a_compressed_file_that_was_cut(tmp_path: Path) -> None:
    rows = "".join(f"job-{i},{i * i * 7919 % 10_007},{i + 1},1\n" for i in range(60_000))
    whole = gzip.compress((ITP + rows).encode())
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidSpec, match="readable, whole file"):
        list(read(path))


def test_a_compressed_file_that_holds_too_much_is_refused_in_pieces(tmp_path: Path) -> None:
    rows = "".join(f"job-{i},{i},1,1\n" for i in range(60_000))
    path = tmp_path / "large.gz"
    path.write_bytes(gzip.compress((ITP + rows).encode()))
    jobs: list[TraceJob] = []
    with pytest.raises(InvalidSpec, match=r"at most 0.0005 GiB.*--unpacked-gib-max"):
        jobs.extend(read(path, unpacked_gib_max=0.0005))
    assert len(jobs) < 60_000
    assert len(list(read(path, unpacked_gib_max=0.002))) == 60_000


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_is_refused_before_it_is_in_memory(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "line.csv"
    content = (ITP + "a" * 100_000_000).encode()
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSpec, match="less than 4,000,000 characters") as caught:
            list(read(path))
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.where == f"{path}, line 2"


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "windows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + ITP.replace("\n", "\r\n").encode() + b'"a",1,2,1\r\n')
    (job,) = read(path, on_bad="fail")
    assert job.id == "a"


@pytest.mark.parametrize(
    "wrong",
    [{"id": ""}, {"cores": -1.0}, {"deadline_s": 0.0}, {"weight": 0.0}, {"device_durations_s": {"A100": 0.0}}],
)
def test_what_no_job_can_be(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec):
        TraceJob(**{"id": "a", "submitted_at": 0.0, **wrong})  # type: ignore[arg-type]
