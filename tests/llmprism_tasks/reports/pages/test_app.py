"""The app of the pages: what it answers, what it refuses, and that it never lets another site mute."""

from __future__ import annotations

import time

import pytest
from fastapi import Depends, HTTPException
from fastapi.testclient import TestClient
from paged_windows import WINDOWS

from llmprism_tasks.contract.errors import InputError, WarehouseBusy
from llmprism_tasks.reports.pages.app import MOST_FORM_BYTES, PAGES, local_app, pages_app, until
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

HERE = "http://127.0.0.1:8090"
OURS = {"Origin": HERE}


def client(warehouse: Warehouse) -> TestClient:
    return TestClient(local_app(lambda: warehouse, user="ann"), base_url=HERE, follow_redirects=False)


def the_incident(warehouse: Warehouse) -> str:
    return str(query(warehouse, "SELECT incident_id FROM incidents").item())


@pytest.mark.parametrize("path", PAGES)
def test_each_page_answers_and_allows_only_our_own_scripts(filled: Warehouse, path: str) -> None:
    answer = client(filled).get(
        f"/{path}", params={"id": the_incident(filled) if path == "incident" else "gpt", "job": "gpt"}
    )
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy


def test_what_pages_load_is_there_and_nothing_else(filled: Warehouse) -> None:
    pages = client(filled)
    for name, kind in (
        ("pages.css", "text/css"),
        ("plotly.min.js", "text/javascript"),
        ("timeline.js", "text/javascript"),
    ):
        answer = pages.get(f"/assets/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    for path in ("/assets/app.py", "/assets/..%2Fapp.py", "/docs", "/openapi.json", "/nothing"):
        assert pages.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/?last=9x", "last=9x"),
        ("/?from=noon", "from=noon"),
        ("/?from=2026-05-02&to=2026-05-01", "a range from 2026-05-02"),
        ("/timeline?id=gpt&window=abc", "window=abc"),
    ],
)
def test_what_cannot_be_read_is_no_missing_page(filled: Warehouse, path: str, words: str) -> None:
    answer = client(filled).get(path)
    assert answer.status_code == 400
    assert words in answer.text


def test_what_is_not_there_is_told_with_what_to_do(filled: Warehouse) -> None:
    answer = client(filled).get("/job", params={"id": "<b>nobody</b>"})
    assert answer.status_code == 404
    assert "no job &lt;b&gt;nobody&lt;/b&gt;" in answer.text
    assert "What to do:" in answer.text


def test_a_busy_warehouse_is_told_as_busy() -> None:
    def busy() -> Warehouse:
        raise WarehouseBusy(found="a warehouse that is held", expected="a free one", todo="Try again later.")

    answer = TestClient(local_app(busy, user="ann"), base_url=HERE).get("/")
    assert answer.status_code == 503
    assert "Try again later." in answer.text


def test_the_flows_of_a_slice_are_json(filled: Warehouse) -> None:
    answer = client(filled).get("/flows", params={"addr": "10.0.1.0", "start": "0", "end": "1"})
    assert answer.json() == {
        "columns": ["start", "ms", "from", "to", "ports", "bytes", "path"],
        "rows": [],
        "more": False,
    }


def test_a_page_can_ask_which_window_is_the_newest(filled: Warehouse) -> None:
    page = client(filled).get("/")
    assert f'data-done="{WINDOWS[1].end_ns}"' in page.text
    assert client(filled).get("/newest").json() == {"done": str(WINDOWS[1].end_ns)}


def test_an_incident_is_muted_with_who_and_why_and_unmuted(own_copy: Warehouse) -> None:
    pages, name = client(own_copy), the_incident(own_copy)
    answer = pages.post("/mute", data={"id": name, "hours": "4", "reason": " ticket 7 "}, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, f"incident?id={name}")
    (row,) = query(own_copy, "SELECT incident_id, reason, muted_by, until_ns - muted_ns AS long FROM mutes").rows()
    assert row == (name, "ticket 7", "ann", 4 * 3_600 * 10**9)
    assert "ticket 7" in pages.get("/incident", params={"id": name}).text
    assert "muted until" in pages.get("/").text
    assert pages.post("/unmute", data={"id": name}, headers=OURS).status_code == 303
    assert query(own_copy, "SELECT until_ns FROM mutes").item() <= time.time_ns()
    assert "muted until" not in pages.get("/").text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": HERE, "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_mutes_nothing(own_copy: Warehouse, headers: dict[str, str]) -> None:
    form = {"id": the_incident(own_copy), "hours": "4", "reason": "because"}
    answer = client(own_copy).post("/mute", data=form, headers=headers)
    assert answer.status_code == 400
    assert "a form that was not sent from these pages" in answer.text
    assert query(own_copy, "SELECT count(*) FROM mutes").item() == 0


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"hours": "0", "reason": "because"}, "a time that is over"),
        ({"hours": "4", "reason": "  "}, "a reason of 0 characters"),
        ({"hours": "4", "reason": "x" * 501}, "a reason of 501 characters"),
        ({"hours": "many", "reason": "because"}, "hours=many"),
        ({"hours": "4", "reason": "because", "id": "nobody"}, "no incident nobody"),
        ({"hours": "4", "reason": "x" * MOST_FORM_BYTES}, "bytes"),
    ],
)
def test_a_mute_that_makes_no_sense_is_refused(own_copy: Warehouse, form: dict[str, str], words: str) -> None:
    answer = client(own_copy).post("/mute", data={"id": the_incident(own_copy)} | form, headers=OURS)
    assert answer.status_code == 400
    assert words in answer.text
    assert query(own_copy, "SELECT count(*) FROM mutes").item() == 0


def test_another_name_for_this_machine_is_refused(filled: Warehouse) -> None:
    assert client(filled).get("/", headers={"Host": "rebound.example"}).status_code == 400


def test_nothing_is_shown_and_nothing_muted_to_whom_may_not(own_copy: Warehouse) -> None:
    def refuse() -> None:
        raise HTTPException(401)

    form = {"id": the_incident(own_copy), "hours": "4", "reason": "because"}
    closed = TestClient(pages_app(lambda: own_copy, who=lambda _: None, reading=[Depends(refuse)]), base_url=HERE)
    for path in (*(f"/{page}" for page in PAGES), "/flows", "/assets/pages.css"):
        assert closed.get(path).status_code == 401
    assert closed.post("/mute", data=form, headers=OURS).status_code == 401
    reader = TestClient(pages_app(lambda: own_copy, who=lambda _: None, muting=[Depends(refuse)]), base_url=HERE)
    assert reader.get("/").status_code == 200
    assert reader.post("/mute", data=form, headers=OURS).status_code == 401
    assert query(own_copy, "SELECT count(*) FROM mutes").item() == 0


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("90m", 5_400),
        ("4h", 14_400),
        ("2d", 172_800),
        ("1970-01-01T00:01:40", 100),
        ("1970-01-01T01:01:40+01:00", 100),
    ],
)
def test_the_end_of_a_mute_is_a_time_or_a_length(text: str, after_s: int) -> None:
    assert until(text, 0) == after_s * 10**9


@pytest.mark.parametrize("text", ["", "h", "soon", "-4h", "4 weeks"])
def test_an_end_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(InputError, match="90m, 4h or 2d"):
        until(text, 0)
