"""Post one JSON body to one address; never raises, and ends after a timeout."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import NamedTuple

from llmprism_tasks import __version__


class Outcome(NamedTuple):
    """What became of a message.

    Attributes
    ----------
    state : `sent` (the receiver took it), `refused` (it surely did not), or `unknown` (it may have: no answer came)
    detail : why, where it was not sent
    answered : whether the receiver is there
    """

    state: str
    detail: str | None = None
    answered: bool = False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they are followed without the body, to a page that answers that all is well."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(address: str, body: str, *, timeout_s: float) -> Outcome:
    """Post a JSON text.

    Parameters
    ----------
    address : `http:` or `https:`; it may hold a secret, so it is in no detail
    timeout_s : patience with the connection, and again with the answer
    """
    if not address.startswith(("http://", "https://")):
        return Outcome("refused", "notify.webhook is no http or https address")
    headers = {"Content-Type": "application/json", "User-Agent": f"llmprism/{__version__}"}
    try:
        request = urllib.request.Request(address, body.encode(), headers)
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s):
            return Outcome("sent", answered=True)
    except urllib.error.HTTPError as error:
        error.close()
        return Outcome("refused", f"HTTP {error.code}", answered=True)
    except (urllib.error.URLError, ValueError, http.client.InvalidURL) as error:  # before the body was all sent
        return Outcome("refused", str(getattr(error, "reason", type(error).__name__)))
    except (OSError, http.client.HTTPException) as error:
        return Outcome("unknown", str(error) or type(error).__name__)
