"""A message is sent, refused, or nobody knows; and it is never the sender's undoing."""

from __future__ import annotations

import socket
import time

import pytest
from receiver import receiving

from llmprism_tasks.execution.notify.webhook import post


def test_what_the_receiver_takes_is_sent() -> None:
    with receiving() as receiver:
        assert post(receiver.address, '{"change": "opened"}', timeout_s=5)[:2] == ("sent", None)
    assert receiver.bodies == [{"change": "opened"}]


@pytest.mark.parametrize(("status", "detail"), [(400, "HTTP 400"), (503, "HTTP 503"), (302, "HTTP 302")])
def test_what_it_answers_with_an_error_or_a_redirect_is_refused(status: int, detail: str) -> None:
    with receiving() as receiver:
        receiver.status = status
        assert post(receiver.address, "{}", timeout_s=5) == ("refused", detail, True)


def test_where_no_answer_comes_nobody_knows() -> None:
    with receiving() as receiver:
        receiver.status = 0
        assert post(receiver.address, "{}", timeout_s=5).state == "unknown"
        receiver.status, receiver.delay_s = 200, 2.0
        began = time.monotonic()
        assert post(receiver.address, "{}", timeout_s=0.2)[:2] == ("unknown", "timed out")
        assert time.monotonic() - began < 1.5
    assert len(receiver.bodies) == 2


def test_where_nobody_listens_it_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/?key=secret"
        outcome = post(address, "{}", timeout_s=5)
    assert (outcome.state, outcome.answered) == ("refused", False)
    assert "refused" in str(outcome.detail)
    assert "secret" not in str(outcome.detail)


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://h/x", "nowhere", "http://", "http://a b/", "http://[/"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    assert post(address, "{}", timeout_s=1).state == "refused"
