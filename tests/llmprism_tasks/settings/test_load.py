"""Settings: defaults that fit their own ranges, layers in order, and errors that say what was found and expected."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import HIDDEN, load, load_with_origins

SETTINGS = [
    (section.name, setting)
    for section in dataclasses.fields(Settings)
    for setting in dataclasses.fields(getattr(Settings(), section.name))
]
NUMBERS = [(section, setting) for section, setting in SETTINGS if "low" in setting.metadata]


def name_of(value: object) -> str:
    return value.name if isinstance(value, dataclasses.Field) else str(value)


def test_nothing_given_gives_the_defaults() -> None:
    assert load() == Settings()


@pytest.mark.parametrize(("section", "setting"), SETTINGS, ids=name_of)
def test_each_setting_has_unit_and_reason_and_a_default_in_its_range(
    section: str, setting: dataclasses.Field[Any]
) -> None:
    meta = setting.metadata
    assert meta["unit"]
    assert len(meta["reason"]) > 10
    if "low" in meta:
        assert meta["low"] <= setting.default <= meta["high"]
    elif meta["choices"]:
        chosen = setting.default.split(",") if meta["several"] else [setting.default]
        assert {one for one in chosen if one or not meta["several"]} <= set(meta["choices"])


@pytest.mark.parametrize(("section", "setting"), NUMBERS, ids=name_of)
def test_both_ends_of_a_range_are_allowed_and_nothing_beyond(section: str, setting: dataclasses.Field[Any]) -> None:
    low, high = setting.metadata["low"], setting.metadata["high"]
    for value in (low, high):
        assert (
            getattr(getattr(load(overrides={f"{section}.{setting.name}": str(value)}), section), setting.name) == value
        )
    for value in (low - 1, high + 1):
        with pytest.raises(SettingsError, match=f"{section}.{setting.name}"):
            load(overrides={f"{section}.{setting.name}": str(value)})


@pytest.mark.parametrize("kinds", ["hang", "ended", "latent", "hang,slow_nic", "hang, slow_nic"])
def test_several_choices_may_be_given(kinds: str) -> None:
    assert load(overrides={"notify.kinds": kinds}).notify.kind_names == tuple(kinds.replace(",", " ").split())


@pytest.mark.parametrize("kinds", ["hangs", "hang,slow", "hang slow_nic", ","])
def test_a_choice_among_several_that_is_none_is_refused(kinds: str) -> None:
    with pytest.raises(SettingsError, match="with commas between several"):
        load(overrides={"notify.kinds": kinds})


def test_the_later_layer_wins_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "llmprism.toml"
    file.write_text('[window]\nlength_s = 10\nlookback_windows = 1\n[places]\nflows = "a"\n', encoding="utf-8")
    settings, origins = load_with_origins(
        file=file,
        environment={
            "LLMPRISM_WINDOW__LENGTH_S": "20",
            "LLMPRISM_PLACES__FLOWS": "b",
            "LLMPRISM_HOME": "/x",
            "HOME": "/y",
        },
        overrides={"window.length_s": "30"},
    )
    assert (settings.window.length_s, settings.window.lookback_windows, settings.places.flows) == (30, 1, "b")
    sources = {f"{one.section}.{one.name}": one.source for one in origins}
    assert sources["window.length_s"] == "--set window.length_s"
    assert sources["places.flows"] == "LLMPRISM_PLACES__FLOWS"
    assert sources["window.lookback_windows"] == str(file)
    assert sources["places.topology"] == "default"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"window.lenght_s": "60"},
            r"lenght_s in --set window\.lenght_s.*llmprism settings.*spelling \(window\.length_s\?\)",
        ),
        ({"windows.length_s": "60"}, r"windows\.length_s"),
        ({"window": "60"}, r"setting window\."),
        ({"window.length_s": "a minute"}, r"'a minute' from --set.*a whole number from 1 to 3600"),
        ({"window.length_s": "1.5"}, r"'1\.5'.*a whole number"),
        ({"window.length_s": ""}, r"a whole number"),
        ({"warehouse.lock_wait_s": "nan"}, r"from 0 to 3600 \(s\)"),
        ({"warehouse.lock_wait_s": "inf"}, r"from 0 to 3600 \(s\)"),
        ({"method.name": "guess"}, r"'guess'.*joint or published"),
        ({"places.warehouse": "a/../w.duckdb", "places.read_copy": "w.duckdb"}, "the file of places.warehouse"),
        ({"places.warehouse": ""}, r"places\.warehouse, which is empty; expected a DuckDB file"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_was_expected(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(overrides=overrides)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("window = ", "cannot be read"),
        ("length_s = 60", r"setting length_s\."),
        ('[window]\nlength_s = "60"', None),
        ("[window]\nlength_s = true", "True"),
        ("[window]\nlength_s = 60.5", "60.5"),
        ("[places]\nflows = 7", "expected text"),
    ],
)
def test_a_settings_file_is_held_to_the_same(tmp_path: Path, content: str, message: str | None) -> None:
    file = tmp_path / "llmprism.toml"
    file.write_text(content, encoding="utf-8")
    if message is None:
        assert load(file=file).window.length_s == 60
    else:
        with pytest.raises(SettingsError, match=message):
            load(file=file)


def test_a_settings_file_of_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes("# caf\xe9\n[window]\nlength_s = 60\n".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"latin\.toml that cannot be read \(.*utf-8"):
        load(file=file)


def test_a_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml that cannot be read"):
        load(file=tmp_path / "none.toml")


def test_an_error_keeps_its_parts_when_it_moves_between_processes() -> None:
    with pytest.raises(SettingsError) as raised:
        load(overrides={"window.length_s": "0"})
    moved = pickle.loads(pickle.dumps(raised.value))
    assert type(moved) is SettingsError
    assert (moved.found, moved.expected, moved.todo) == (raised.value.found, raised.value.expected, raised.value.todo)


def test_a_secret_is_used_but_not_shown() -> None:
    address = "https://hooks.example/T0/secret"
    settings, origins = load_with_origins(overrides={"notify.webhook": address})
    assert settings.notify.webhook == address
    shown = {(one.section, one.name): one.value for one in origins}
    assert shown["notify", "webhook"] == HIDDEN
    assert {(one.section, one.name): one.value for one in load_with_origins()[1]}["notify", "webhook"] == ""


def test_an_address_that_is_none_is_refused_and_not_shown() -> None:
    for address in ("hooks.example/T0/secret", "http://"):
        with pytest.raises(SettingsError, match="https:// or http:// and what follows") as raised:
            load(overrides={"notify.webhook": address})
        assert "secret" not in str(raised.value)


def test_a_variable_with_one_underscore_too_few_is_told_its_name() -> None:
    with pytest.raises(SettingsError, match="LLMPRISM_PLACES__FLOWS"):
        load(environment={"LLMPRISM_PLACES_FLOWS": "x"})
    with pytest.raises(SettingsError, match="LLMPRISM_NOTIFY__WEBHOK"):
        load(environment={"LLMPRISM_NOTIFY_WEBHOK": "https://hooks.example"})
    assert load(environment={"LLMPRISM_HOME": "x", "LLMPRISM_WINDOW": "x"}) == Settings()


def test_without_kinds_all_but_the_quiet_ones_send_messages() -> None:
    every = load(overrides={"notify.quiet_kinds": ""}).notify.kind_names
    assert set(every) - set(load().notify.kind_names) == {"ended", "latent"}
    assert "hang" not in load(overrides={"notify.quiet_kinds": "hang,ended"}).notify.kind_names


def test_a_text_with_a_nul_character_is_refused(tmp_path: Path) -> None:
    """Before, a path with one was a traceback."""
    file = tmp_path / "settings.toml"
    file.write_text('[places]\nwarehouse = "a\\u0000b"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"places\.warehouse = 'a\\x00b' .*without a NUL character"):
        load(file=file)
