"""The compose file: accepted by Docker Compose, and without a password anybody could know."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

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


def test_every_part_of_airflow_has_its_container(project: Path) -> None:
    services = yaml.safe_load((project / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"database", "init", "api-server", "scheduler", "dag-processor", "triggerer"}


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
