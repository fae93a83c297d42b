"""The compose file: accepted by Docker Compose, and without a password anybody could know."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

SECRETS = ("LLMPRISM_DATABASE_PASSWORD", "LLMPRISM_API_SECRET", "LLMPRISM_JWT_SECRET", "LLMPRISM_FERNET_KEY")


def _compose() -> list[str]:
    """The command, as Docker's plugin or on its own."""
    plugin = ["docker", "compose"]
    if (
        shutil.which("docker")
        and subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0
    ):
        return plugin
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("neither `docker compose` nor `docker-compose` is installed")


def _config(project: Path, nothing: Path, secrets: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if not nothing.exists():
        nothing.touch()  # in place of a developer's own .env
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLMPRISM_")} | secrets
    command = [*_compose(), "--env-file", str(nothing), "-f", str(project / "docker-compose.yml"), "config"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_compose_accepts_the_file_and_fills_in_the_secrets(project: Path, tmp_path: Path) -> None:
    done = _config(project, tmp_path / ".env", {name: f"value-of-{name}" for name in SECRETS})
    assert done.returncode == 0, done.stderr
    for name in SECRETS:
        assert f"value-of-{name}" in done.stdout


@pytest.mark.parametrize("missing", SECRETS)
def test_compose_refuses_to_start_without_each_secret(project: Path, tmp_path: Path, missing: str) -> None:
    done = _config(project, tmp_path / ".env", {name: "value" for name in SECRETS if name != missing})
    assert done.returncode != 0
    assert "set it, see .env.example" in done.stderr


ONE_MACHINE = {"database", "init", "api-server", "scheduler", "dag-processor", "triggerer"}
DISTRIBUTED = {"redis", "worker"}


def _services(project: Path) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    return services


def test_every_part_of_airflow_has_its_container(project: Path) -> None:
    services = _services(project)
    assert {name for name, service in services.items() if "profiles" not in service} == ONE_MACHINE
    assert {name for name, service in services.items() if service.get("profiles") == ["distributed"]} == DISTRIBUTED


def test_compose_accepts_the_profile_distributed_as_the_example_has_it(project: Path, tmp_path: Path) -> None:
    _, _, block = (project / ".env.example").read_text(encoding="utf-8").partition("# Distributed:")
    lines = [line.removeprefix("# ") for line in block.splitlines() if "=" in line]
    filled = [f"{line}{line}" if line.endswith("PASSWORD=") else line for line in lines]
    secrets = dict.fromkeys(SECRETS, "value")
    (tmp_path / ".env").write_text("\n".join([*filled, *(f"{name}=value" for name in SECRETS)]), encoding="utf-8")
    done = _config(project, tmp_path / ".env", secrets | {"COMPOSE_PROFILES": "distributed"})
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == ONE_MACHINE | DISTRIBUTED
    for name in ("worker", "scheduler"):
        variables = services[name]["environment"]
        assert variables["AIRFLOW__CORE__EXECUTOR"] == "CeleryExecutor"
        assert variables["LLMPRISM_PLACES__WAREHOUSE"].startswith("ducklake:postgres:dbname=lake host=database")
        assert "password" not in variables["LLMPRISM_PLACES__WAREHOUSE"]
        assert int(variables["LLMPRISM_BATCHES__SPREAD"]) > 1
        assert variables["AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER"] == "1"


@pytest.mark.parametrize("name", sorted(DISTRIBUTED))
def test_what_the_profile_adds_may_do_little_and_publishes_nothing(project: Path, name: str) -> None:
    service = _services(project)[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert {"mem_limit", "healthcheck"} <= set(service)
    assert "ports" not in service


def test_a_dead_worker_is_noticed_within_a_minute(project: Path) -> None:
    variables = _services(project)["worker"]["environment"]
    timeout = "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT"
    assert int(variables[timeout]) + int(variables[f"{timeout}_DETECTION_INTERVAL"]) < 60


def test_a_slot_that_a_dead_worker_kept_is_free_again_within_an_hour(project: Path) -> None:
    """A task that ended when its worker died is STARTED for Celery until then, and the executor counts it."""
    variables = _services(project)["scheduler"]["environment"]
    assert int(variables["AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT"]) <= 3600


def test_every_container_has_least_privileges_and_a_limit(project: Path) -> None:
    services = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name, service in services.items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_no_container_serves_logs_to_the_others(project: Path) -> None:
    services = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name in ("scheduler", "triggerer"):
        assert services[name]["command"] == f"{name} --skip-serve-logs"


def test_the_example_names_every_secret_and_gives_none_away(project: Path) -> None:
    lines = (project / ".env.example").read_text(encoding="utf-8").splitlines()
    assert {f"{name}=" for name in SECRETS} <= set(lines)


def test_the_image_is_of_the_airflow_version_that_was_tried(project: Path) -> None:
    (pinned,) = [
        line.partition("==")[2]
        for line in (project / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("apache-airflow==")
    ]
    assert f"FROM apache/airflow:slim-{pinned}-python3.11" in (project / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["llmprism_tasks", "sql", "expectations", "dags", "tools/demo/config"])
def test_the_image_gets_every_folder_that_is_read_at_run_time(project: Path, folder: str) -> None:
    assert (project / folder).is_dir()
    assert f"COPY --chown=airflow:root {folder} " in (project / "Dockerfile").read_text(encoding="utf-8")
    assert f"!{folder}" in (project / ".dockerignore").read_text(encoding="utf-8").splitlines()
