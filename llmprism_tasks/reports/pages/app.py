"""The pages as an app: for Airflow's API server, and for `llmprism serve`. It reads and mutes, nothing else."""

from __future__ import annotations

import datetime as dt
import functools
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.params import Depends
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from llmprism_tasks.contract.errors import InputError, LlmprismError, RequestError, TransientError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports.pages import incident, job, now, ranges, timeline, window
from llmprism_tasks.reports.pages.markup import ASSETS, POLICY, render
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.bookkeeping import notifications
from llmprism_tasks.warehouse.connect import Warehouse

Show = Callable[..., str]

PAGES: dict[str, Show] = {
    "": now.show, "job": job.show, "timeline": timeline.show, "incident": incident.show, "window": window.show,
}  # fmt: skip
"""Pages by their paths. They lie in one folder, so that links in them hold wherever the app is mounted."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

MOST_FORM_BYTES = 10_000
MUTES_H = (1, 4, 24, 72, 168)
"""Hours for which the page offers to mute."""


def pages_app(
    warehouse: Callable[[], Warehouse],
    *,
    who: Callable[[Request], str | None],
    settings: Settings | None = None,
    reading: Sequence[Depends] = (),
    muting: Sequence[Depends] = (),
) -> FastAPI:
    """Return the app.

    Parameters
    ----------
    warehouse : opens the warehouse, anew for each request
    who : names the person behind a request, for the record of mutes
    settings : of the runs, to tell which minutes are late; by default those that every setting has
    reading, muting : what has to hold before a page is shown, or an incident muted: FastAPI's dependencies
    """
    app = FastAPI(title="LLMPrism", docs_url=None, redoc_url=None, openapi_url=None, dependencies=list(reading))
    app.add_exception_handler(LlmprismError, _told)

    shows = PAGES | {"": functools.partial(now.show, settings=settings)}
    for path, show in shows.items():
        app.add_api_route(f"/{path}", _page(warehouse, show), methods=["GET"], response_class=HTMLResponse)

    @app.get("/flows")
    def flows(request: Request) -> JSONResponse:
        return JSONResponse(timeline.flows(warehouse(), request.query_params), headers=HEADERS)

    @app.get("/newest")
    def newest() -> JSONResponse:
        return JSONResponse({"done": ranges.newest(warehouse())}, headers=HEADERS)

    @app.get("/assets/{name}")
    def asset(name: str) -> Response:
        if name not in ASSETS:
            return Response(status_code=404)
        path, kind = ASSETS[name]
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    _add_muting(app, warehouse, who, muting)
    return app


def _add_muting(
    app: FastAPI,
    warehouse: Callable[[], Warehouse],
    who: Callable[[Request], str | None],
    muting: Sequence[Depends],
) -> None:
    """Add the forms that mute an incident and end that."""

    @app.post("/mute", dependencies=list(muting))
    async def mute(request: Request) -> RedirectResponse:
        """Mute an incident for the hours that the form says, at most the longest time that the page offers."""
        form = await _form(request)
        hours = timeline.whole(form, "hours") or 0
        now_ns = time.time_ns()
        await run_in_threadpool(
            notifications.mute,
            warehouse(),
            form.get("id", ""),
            now_ns=now_ns,
            until_ns=now_ns + min(max(hours, 0), max(MUTES_H)) * 3_600 * NANOSECONDS_PER_SECOND,
            reason=form.get("reason", ""),
            muted_by=who(request),
        )
        return _back(form)

    @app.post("/unmute", dependencies=list(muting))
    async def unmute(request: Request) -> RedirectResponse:
        form = await _form(request)
        await run_in_threadpool(notifications.unmute, warehouse(), form.get("id", ""), now_ns=time.time_ns())
        return _back(form)


def _page(warehouse: Callable[[], Warehouse], show: Show) -> Callable[[Request], HTMLResponse]:
    def page(request: Request) -> HTMLResponse:
        return HTMLResponse(show(warehouse(), request.query_params, now_ns=time.time_ns()), headers=HEADERS)

    return page


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent.

    A browser says from which site a form was sent. One that another site made it send is refused, as is one that does
    not say: the cookie of Airflow's login would come with either.

    Raises
    ------
    InputError : it came from elsewhere, or is too long
    """
    site = request.headers.get("sec-fetch-site")
    origin = urllib.parse.urlsplit(
        request.headers.get("origin", "")
    ).netloc  # told also where the site is not: over http
    ours = site == "same-origin" if site else origin != "" and origin == request.headers.get("host")
    if not ours:
        raise InputError(
            found="a form that was not sent from these pages",
            expected="the form of an incident's page",
            todo="Open the incident and mute it there, or use `llmprism mute`.",
        )
    body = await request.body()
    if len(body) > MOST_FORM_BYTES:
        raise InputError(
            found=f"a form of {len(body):,} bytes",
            expected=f"at most {MOST_FORM_BYTES:,}",
            todo="Write a shorter reason.",
        )
    return dict(urllib.parse.parse_qsl(body.decode(errors="replace")))


def _back(form: dict[str, str]) -> RedirectResponse:
    return RedirectResponse(f"incident?{urllib.parse.urlencode({'id': form.get('id', '')})}", status_code=303)


def _told(request: Request, error: Exception) -> HTMLResponse:
    """Return an error as a page: what was found, what was expected, what to do."""
    kept: dict[str, Any] = {name: getattr(error, name, "") for name in ("found", "expected", "todo")}
    unreadable = isinstance(error, RequestError) or request.method != "GET"
    status, title = (400, "Not done") if unreadable else (404, "Not found")
    if isinstance(error, TransientError):
        status, title = 503, "Busy"
    text = render("message.html", title=title, here="message", asked=None, **kept)
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def local_app(warehouse: Callable[[], Warehouse], *, user: str, settings: Settings | None = None) -> FastAPI:
    """Return the app for this machine alone: requests by other names than this machine's are refused.

    A page of another site could otherwise have its name resolved to this machine, and read ours.
    """
    app = pages_app(warehouse, who=lambda _: user, settings=settings)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return app


def until(text: str, now_ns: int) -> int:
    """Return the end of a mute in ns: a time in ISO 8601, or a length such as `90m`, `4h` or `2d` from now.

    Raises
    ------
    InputError : it is neither
    """
    number, unit = text[:-1], text[-1:]
    lengths = {"m": 60, "h": 3_600, "d": 86_400}
    if unit in lengths and number.isascii() and number.isdigit() and len(number) <= 5:
        return now_ns + int(number) * lengths[unit] * NANOSECONDS_PER_SECOND
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            found=f"until {text[:40]!r}",
            expected="a time such as 2026-05-01T04:12Z, or a length such as 90m, 4h or 2d",
            todo="Write one of them.",
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp()) * NANOSECONDS_PER_SECOND
