"""What stands before every request: host, method, token and size; and the headers of every answer.

The server listens on the loopback only. A page of another site can still send requests there: it does not know the
token in the address, and a name of its own that it points at the loopback (DNS rebinding) is not among the hosts.
"""

import hmac

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_ADDRESS = 2400
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
"""Nothing comes from elsewhere, and nothing goes there; data: and blob: are for pictures that the page saves."""


class Guard:
    """Lets through what is meant for `app`: GET of /token/… with a host that is this machine, and nothing large.

    `hosts` are further names under which the server may be asked, such as that of a container's machine.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {name.lower() for name in (*LOOPBACK, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
            await send(message)

        answer = self._app
        if scope["type"] == "http" and (problem := self._problem(scope)):
            status, words = problem
            headers = {"connection": "close", "allow": "GET"}  # what else was sent along is not read
            answer = PlainTextResponse(words, status, headers)
        await answer(scope, receive, guarded)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not answered."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        if (name if colon and port.isdigit() else host) not in self._hosts:
            return 421, "this server answers to 127.0.0.1 and localhost alone"
        if scope["method"] != "GET":
            return 405, "only GET is served"
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return 413, "a request has no body here"
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
            return 414, f"an address has at most {LONGEST_ADDRESS} letters"
        token = scope["path"].encode("utf-8", "replace").split(b"/")[1:2]
        if not token or not hmac.compare_digest(token[0], self._token):
            return 403, "the address holds no valid token; open the one that `sgdlimit explore` printed"
        if headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate":
            return 403, "another site asked for this"
        return None
