"""Secrets: taken out of locations, read from files, refused as arguments, and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.settings.load import HIDDEN, SECRETS, load, load_with_origins
from llmprism_tasks.settings.secrets import refuse_in_arguments, split_location

PASSWORD = "Zebra'7 &x"


@pytest.mark.parametrize(
    ("location", "shown", "password"),
    [
        ("ducklake:postgres:dbname=l password=x1 host=h", "ducklake:postgres:dbname=l host=h", "x1"),
        ("ducklake:postgres:dbname=l password=x1", "ducklake:postgres:dbname=l", "x1"),
        ("ducklake:postgres:password=x1 dbname=l", "ducklake:postgres:dbname=l", "x1"),
        ("ducklake:postgres:dbname=l password = 'Zebra\\'7 &x'", "ducklake:postgres:dbname=l", PASSWORD),
        ("ducklake:postgres:postgresql://u:x1@h/l", "ducklake:postgres:postgresql://u@h/l", "x1"),
        ("ducklake:postgres:postgresql://u:x%201@h/l", "ducklake:postgres:postgresql://u@h/l", "x 1"),
        ("ducklake:postgres:postgresql://u:x@1@h/l", "ducklake:postgres:postgresql://u@h/l", "x@1"),
        ("ducklake:postgres:postgresql://h/l?user=u&password=x1", "ducklake:postgres:postgresql://h/l?user=u", "x1"),
        ("ducklake:mysql:db=l passwd=x1 host=h", "ducklake:mysql:db=l host=h", "x1"),
        ("ducklake:postgres:dbname=l passfile=/run/x", "ducklake:postgres:dbname=l passfile=/run/x", ""),
        ("ducklake:postgres:dbname=l nopassword=x", "ducklake:postgres:dbname=l nopassword=x", ""),
        ("ducklake:/data/password=x", "ducklake:/data/password=x", ""),
        ("/data/password=x.duckdb", "/data/password=x.duckdb", ""),
    ],
)
def test_a_location_is_split_from_its_password(location: str, shown: str, password: str) -> None:
    assert split_location(location) == (shown, password)


def test_a_password_in_the_location_is_moved_to_where_it_is_not_shown() -> None:
    location = "ducklake:postgres:dbname=lake password=x1"
    settings, origins = load_with_origins(environment={"LLMPRISM_PLACES__WAREHOUSE": location})
    assert settings.places.warehouse == "ducklake:postgres:dbname=lake"
    assert settings.warehouse.catalog_password == "x1"
    assert {(one.section, one.name): one.value for one in origins}["warehouse", "catalog_password"] == HIDDEN
    assert "x1" not in repr(settings) + repr(origins)


@pytest.mark.parametrize(
    "location",
    ["postgres:dbname=l password=x1", "postgresql://u:x1@h/l", "MySQL:db=l passwd=x1", "md:l?motherduck_token=x1"],
)
def test_a_database_that_is_no_ducklake_is_refused_and_not_repeated(location: str) -> None:
    """Before, it was taken for a path, and the password for a part of its name."""
    with pytest.raises(SettingsError, match="ducklake:postgres:") as raised:
        load(environment={"LLMPRISM_PLACES__WAREHOUSE": location})
    assert "x1" not in str(raised.value)


def test_a_secret_is_read_from_the_file_that_its_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    variable = "LLMPRISM_WAREHOUSE__CATALOG_PASSWORD"
    for others in ({}, {variable: ""}):
        settings, origins = load_with_origins(environment={f"{variable}_FILE": str(file)} | others)
        assert settings.warehouse.catalog_password == PASSWORD
        assert PASSWORD not in repr(origins)
    with pytest.raises(SettingsError, match=f"both variables {variable} and {variable}_FILE") as raised:
        load(environment={variable: PASSWORD, f"{variable}_FILE": str(file)})
    assert PASSWORD not in str(raised.value)


def test_a_secrets_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    variable = "LLMPRISM_NOTIFY__WEBHOOK_FILE"
    with pytest.raises(SettingsError, match=r"names a file .*none that cannot be read \(No such file"):
        load(environment={variable: str(tmp_path / "none")})
    (tmp_path / "empty").touch()
    with pytest.raises(SettingsError, match="empty that is empty"):
        load(environment={variable: str(tmp_path / "empty")})


def test_only_a_secret_is_read_from_a_file() -> None:
    with pytest.raises(SettingsError, match=r"places\.flows_file"):
        load(environment={"LLMPRISM_PLACES__FLOWS_FILE": "x"})


@pytest.mark.parametrize(
    "argument",
    [
        ("notify.webhook", "https://hooks.example/T0/hidden"),
        ("warehouse.catalog_password", "hidden"),
        ("places.warehouse", "ducklake:postgres:dbname=l password=hidden"),
    ],
)
def test_a_secret_among_arguments_is_refused_and_not_repeated(argument: tuple[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"LLMPRISM_.*_FILE name a file") as raised:
        refuse_in_arguments(dict([argument]), SECRETS)
    assert "hidden" not in str(raised.value)
    refuse_in_arguments({"places.warehouse": "ducklake:postgres:dbname=l", "notify.webhook": ""}, SECRETS)
