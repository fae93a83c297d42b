"""Each check on both sides of its threshold, and what it says is to be done."""

from __future__ import annotations

import http.server
import json
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from empty_warehouse import copied, empty_warehouse
from kept_windows import put

from llmprism_tasks.reports.doctor import exposure, scheduler, software, storage, traffic
from llmprism_tasks.reports.doctor.exposure import Port
from llmprism_tasks.reports.doctor.finding import OK, PROBLEM, WARNING, Finding
from llmprism_tasks.reports.doctor.storage import Growth
from llmprism_tasks.reports.minute_states import Coverage
from llmprism_tasks.settings import PlaceSettings, RetentionSettings, Settings
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.upkeep import read_copy, space

MINUTE_H = 1 / 60
CELERY = {"core.executor": "CeleryExecutor"}


def states(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(one.check, one.state) for one in findings]


@pytest.mark.parametrize(("version", "state"), [("1.5.5", OK), ("1.6.0", PROBLEM), ("1.4.9", PROBLEM), (None, WARNING)])
def test_a_version_is_in_the_range_that_was_tried(version: str | None, state: str) -> None:
    (_, found) = software.versions({"duckdb": version}, ["duckdb>=1.5,<1.6", "polars>=2"])
    assert (found.check, found.state) == ("duckdb", state)
    assert ("Install duckdb<1.6,>=1.5" in found.todo) == (state != OK)


def test_this_installation_has_the_versions_that_it_asks_for() -> None:
    found = list(software.look_at_versions())
    assert {"llmprism", "duckdb", "polars", "great-expectations", "apache-airflow"} <= {one.check for one in found}
    assert {one.state for one in found} == {OK}


def test_kernels_are_compiled_after_their_last_change(tmp_path: Path) -> None:
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    assert software.kernels({old: 5.0, new: 6.0}, {"old": 5.0, "new": 7.0}).state == OK
    found = software.kernels({old: 5.0, new: 8.0}, {"old": 5.0, "new": 7.0})
    assert (found.state, found.found) == (WARNING, "1 of 2 modules of kernels are compiled")
    assert "compile_kernels" in found.todo


def test_machine_code_is_looked_for_where_numba_was_told_to_keep_it(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("@kernel(INT64S)\n", encoding="utf-8")
    (tmp_path / "speaks_of_kernels.py").write_text('"""As `@kernel(INT64S)` does."""\n', encoding="utf-8")
    assert software.look_at_kernels(tmp_path, {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}).state == WARNING
    (tmp_path / "cache" / "x").mkdir(parents=True)
    (tmp_path / "cache" / "x" / "loops.sum-7.py311.nbi").touch()
    assert software.look_at_kernels(tmp_path, {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}).state == OK


@pytest.mark.parametrize(
    ("free_mb", "state"),
    [(48 * 60 + 1, OK), (48 * 60 - 1, WARNING), (121, WARNING), (119, PROBLEM)],
)
def test_there_is_room_for_a_weekend_or_it_is_said(free_mb: int, state: str) -> None:
    """A megabyte a minute, kept for ever."""
    settings = Settings(retention=RetentionSettings(flows_h=0))
    growth = Growth(size=10**9, by_table={"flows": 1e6}, flows=1e5, window_h=MINUTE_H)
    found = storage.room(growth, free_mb * 10**6, settings)
    assert found.state == state
    assert "a window adds 1 MB, a day 1.44 GB, without end" in found.found


@pytest.mark.parametrize(("size_mb", "state"), [(360, OK), (349, PROBLEM)])
def test_a_warehouse_that_has_stopped_growing_needs_no_more_room(size_mb: int, state: str) -> None:
    """Six hours of a megabyte a minute are 360 megabytes; ten are free."""
    growth = Growth(size=size_mb * 10**6, by_table={"flows": 1e6}, flows=1e5, window_h=MINUTE_H)
    found = storage.room(growth, 10 * 10**6, Settings())
    assert (found.state, "up to 360 MB" in found.found) == (state, True)


@pytest.mark.parametrize(("free_gb", "state"), [(130, OK), (128, WARNING), (7, WARNING)])
def test_there_is_room_for_all_that_will_be_kept(free_gb: int, state: str) -> None:
    """A megabyte a minute for ninety days is 129.6 gigabytes, however far away that is."""
    growth = Growth(size=10**6, by_table={"flows": 1e6}, flows=1e5, window_h=MINUTE_H)
    found = storage.room(growth, free_gb * 10**9, Settings(retention=RetentionSettings(flows_h=90 * 24)))
    assert (found.state, "up to 130 GB" in found.found) == (state, True)


@pytest.mark.parametrize(("free", "state"), [(72_000_001, OK), (72_000_000, PROBLEM)])
def test_tasks_have_room_for_what_they_hand_over(free: int, state: str) -> None:
    """60 bytes for each of 100,000 flows of six windows, twice."""
    assert storage.exchange(100_000, free, Settings()).state == state


@pytest.mark.parametrize(("behind", "state"), [(0, OK), (3, OK), (4, WARNING), (None, WARNING)])
def test_a_read_copy_is_at_most_a_few_windows_behind(behind: int | None, state: str) -> None:
    assert storage.copy_age(behind).state == state


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_warehouse(tmp_path_factory.mktemp("eight") / "made.duckdb")
    put(made, range(8))
    return made


@pytest.fixture
def warehouse(eight: Warehouse, tmp_path: Path) -> Warehouse:
    return copied(eight, tmp_path / "warehouse.duckdb")


def test_growth_is_measured_by_the_last_windows(warehouse: Warehouse) -> None:
    growth = storage.measured(warehouse, Settings())
    assert growth.flows == 20
    assert growth.by_table["flows"] > 0
    assert growth.by_table["pairs"] == 0
    assert growth.per_window == sum(growth.by_table.values())


def test_a_warehouse_and_its_copy_are_looked_at(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    settings = Settings(places=PlaceSettings(warehouse=warehouse.location, read_copy=str(copy)))
    assert states([storage.look_at_schema(warehouse)]) == [("warehouse", OK)]
    assert states(storage.look(warehouse, settings))[3] == ("read copy", WARNING)
    read_copy.publish(warehouse, copy)
    put(warehouse, [8, 9])
    assert list(storage.look(warehouse, settings))[3].found == "2 windows behind the warehouse"


@pytest.mark.parametrize("location", ["{}/w.duckdb", "ducklake:{}/w.ducklake"])
def test_a_warehouse_that_cannot_be_written_is_named(tmp_path: Path, location: str) -> None:
    """A file of /proc/sys stands for a disk that is mounted read-only: not even root may write it."""
    assert storage.writable(space.places_of(open_warehouse(Warehouse(location.format(tmp_path), 5)))).state == OK
    found = storage.writable([tmp_path, Path("/proc/sys/kernel/osrelease")])
    assert (found.state, found.found) == (WARNING, "/proc/sys/kernel/osrelease cannot be written by this user")


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ("UPDATE schema_version SET views = 'other'", WARNING, "The next analysis or run brings it up to date."),
        ("UPDATE schema_version SET version = 999", PROBLEM, "Install the llmprism that wrote it"),
    ],
)
def test_a_warehouse_of_another_version_is_said_and_not_changed(
    warehouse: Warehouse, change: str, state: str, said: str
) -> None:
    warehouse.write(lambda connection: connection.execute(change))
    before = Path(warehouse.location).read_bytes()
    found = storage.look_at_schema(warehouse)
    assert (found.state, said in found.todo) == (state, True)
    assert Path(warehouse.location).read_bytes() == before
    assert storage.look_at_schema(Warehouse("/nowhere/w.duckdb", 0)).state == PROBLEM


@pytest.mark.parametrize(
    ("nics", "seen", "expected"),
    [
        (10, range(10), [OK, OK]),
        (10, range(1, 10), [OK, OK]),
        (10, range(2, 10), [OK, WARNING]),
        (10, range(20), [OK, OK]),
        (10, range(21), [WARNING, OK]),
        (10, range(50, 60), [PROBLEM, WARNING]),
    ],
)
def test_the_topology_knows_most_addresses_and_most_of_its_nics_are_seen(
    nics: int, seen: range, expected: list[str]
) -> None:
    found = traffic.coverage([str(number) for number in range(nics)], [str(number) for number in seen], [])
    assert [one.state for one in found] == expected


def test_nics_that_train_without_being_listed_are_named() -> None:
    *_, found = traffic.coverage(["a"], ["a", "b"], ["b"])
    assert (found.state, found.found) == (
        WARNING,
        "1 that train with listed ones are missing from the topology, such as b",
    )


@pytest.mark.parametrize(("ahead_s", "state"), [(-3600, OK), (1.9, OK), (2.1, PROBLEM)])
def test_records_are_not_from_the_future(ahead_s: float, state: str) -> None:
    assert traffic.clocks(10**18 + round(ahead_s * 1e9), now_ns=10**18).state == state


@pytest.mark.parametrize(
    ("delays", "state", "said"),
    [
        ([1.0, 15.0], OK, "written 1 to 15 s after their windows' ends"),
        ([1.0, 15.1], WARNING, ""),
        ([-1.9, 2.0], OK, ""),
        ([-2.1, 2.0], WARNING, ""),
        ([], OK, "no files with a window in their names"),
    ],
)
def test_files_come_after_their_windows_and_in_time(delays: list[float], state: str, said: str) -> None:
    found = traffic.deliveries(delays, lateness_s=15)
    assert (found.state, said in found.found) == (state, True)


def test_flows_of_a_warehouse_are_looked_at(warehouse: Warehouse) -> None:
    found = {one.check: one for one in traffic.look(warehouse, ["10.0.1.0", "10.9.9.9"], Settings())}
    assert found["topology"].found == "1 of the 9 addresses in the flows are listed"
    assert found["NICs"].found == "1 of the 2 that are listed were seen"
    assert "days old" in found["clock of the flows"].found


def test_minutes_that_nothing_has_looked_for_are_a_warning() -> None:
    missed = Coverage(expected=4, done=4, due={}, given_up=0, expired=0, lag_s=400.0, silent_s=400.0, unseen=5)
    found = traffic.backlog(missed)
    assert (found.state, "scheduler" in found.todo) == (WARNING, True)


@pytest.mark.parametrize(
    ("due", "given_up", "state"),
    [({}, 0, OK), ({"skipped": 10}, 0, OK), ({"skipped": 11}, 0, WARNING), ({}, 1, WARNING)],
)
def test_few_minutes_wait_to_be_run(due: dict[str, int], given_up: int, state: str) -> None:
    counted = Coverage(expected=20, done=9, due=due, given_up=given_up, expired=0, lag_s=None, silent_s=None)
    found = traffic.backlog(counted)
    assert (found.state, found.found.startswith("20 minutes expected: 9 done")) == (state, True)


@pytest.mark.parametrize(("address", "state"), [("127.0.0.1", OK), ("::1", OK), ("0.0.0.0", WARNING), ("::", WARNING)])
def test_a_port_that_others_can_reach_is_named(address: str, state: str) -> None:
    (found,) = exposure.ports([Port(address, 8793, "process 7 (airflow worker)")])
    assert found.state == state
    assert ("8793 on" in found.found) == (state != OK)


@pytest.mark.parametrize(("mode", "state"), [(0o600, OK), (0o400, OK), (0o640, PROBLEM), (0o604, PROBLEM)])
def test_a_file_with_passwords_is_its_owners_alone(tmp_path: Path, mode: int, state: str) -> None:
    file = tmp_path / "simple_auth_manager_passwords.json.generated"
    file.touch()
    file.chmod(mode)
    (found,) = exposure.look_at_secrets({}, tmp_path)
    assert (found.state, stat.filemode(file.stat().st_mode) in found.found) == (state, True)
    assert states(exposure.look_at_secrets({"PGPASSFILE": str(file)}, None)) == [("password file", state)]


@pytest.mark.parametrize(
    ("values", "check", "state"),
    [
        ({}, "airflow's database", WARNING),
        ({"database.sql_alchemy_conn": "sqlite:////a.db"}, "airflow's database", WARNING),
        ({"database.sql_alchemy_conn": "postgresql+psycopg2://u:secret@h/a"}, "airflow's database", OK),
        ({}, "airflow's parallelism", WARNING),
        ({"core.parallelism": "8"}, "airflow's parallelism", OK),
        ({"core.parallelism": "9"}, "airflow's parallelism", WARNING),
        ({}, "airflow's heartbeat", WARNING),
        ({"scheduler.task_instance_heartbeat_timeout": "60"}, "airflow's heartbeat", OK),
        (CELERY, "airflow's slots", WARNING),
        (CELERY | {"celery_broker_transport_options.visibility_timeout": "3601"}, "airflow's slots", WARNING),
        (CELERY | {"celery_broker_transport_options.visibility_timeout": "3600"}, "airflow's slots", OK),
        ({"core.dags_folder": "/here"}, "airflow's DAGs", OK),
        ({"core.dags_folder": "/elsewhere"}, "airflow's DAGs", PROBLEM),
    ],
)
def test_airflows_settings_are_judged(values: dict[str, str], check: str, state: str) -> None:
    found = scheduler.settings(
        lambda section, name: values.get(f"{section}.{name}"), cores=2, dags=lambda folder: folder == Path("/here")
    )
    by_check = {one.check: one for one in found}
    assert by_check[check].state == state
    assert not any("secret" in one.found for one in by_check.values())


def answering(body: str) -> str:
    """Answer one request for Airflow's health; returns the address."""

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/of/airflow/api/v2/monitor/health" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Health)
    server.timeout = 10

    def answer() -> None:
        with server:
            server.handle_request()

    threading.Thread(target=answer).start()
    return f"http://127.0.0.1:{server.server_port}/of/airflow"


@pytest.mark.parametrize(
    ("triggerer", "state", "said"),
    [
        ("healthy", OK, "scheduler, triggerer healthy"),
        ("unhealthy", PROBLEM, "triggerer not healthy"),
        (None, PROBLEM, "triggerer not healthy"),
    ],
)
def test_a_part_of_airflow_that_is_dead_is_a_problem(triggerer: str | None, state: str, said: str) -> None:
    address = answering(json.dumps({"scheduler": {"status": "healthy"}, "triggerer": {"status": triggerer}}))
    found = scheduler.components(address, scheduler.ask(address))
    assert (found.state, said in found.found) == (state, True)


def test_an_airflow_that_does_not_answer_is_a_warning() -> None:
    address = answering("no JSON")
    assert scheduler.components(address, scheduler.ask(address)).state == WARNING
    found = scheduler.components("http://127.0.0.1:1", scheduler.ask("http://127.0.0.1:1"))
    assert (found.state, found.found) == (WARNING, "nobody answers at http://127.0.0.1:1")


def test_airflow_is_looked_at_where_it_is_used_and_variables_come_first(tmp_path: Path, project: Path) -> None:
    assert list(scheduler.look({"HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)}))
    (tmp_path / "airflow.cfg").write_text("[core]\nparallelism = 99\ndags_folder = /none\n", encoding="utf-8")
    environment = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags")}
    found = {one.check: one for one in scheduler.look(environment)}
    assert found["airflow's parallelism"].found.startswith("99 tasks")
    assert found["airflow's DAGs"].state == OK
