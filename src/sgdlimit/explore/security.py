"""What stands before every request: host, method, token and size; and the headers of every answer.

The server listens on the loopback only. A page of another site can still send requests there: it does not know the
token in the address, and a name of its own that it points at the loopback (DNS rebinding) is not among the hosts.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
"""What ASGI tells of a request; a message has the same form."""
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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


def new_token() -> str:
    """A random word that cannot be guessed."""
    return secrets.token_urlsafe(24)


def local(host: str) -> bool:
    """Whether an address to listen on is the machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through what is meant for `app`: GET of /token/… with a host that is this machine, and nothing large.

    `hosts` are further names under which the server may be asked, such as that of a container's machine.
    """

    def __init__(self, app: App, token: str, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {name.lower() for name in (*LOOPBACK, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("only http is served")  # a websocket is closed by that

        async def guarded(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
            await send(message)

        problem = self._problem(scope)
        if problem is None:
            first = len(self._token) + 1
            await self._app(dict(scope) | {"path": scope["path"][first:], "root_path": ""}, receive, guarded)
            return
        status, words = problem
        text = words.encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
        headers += [(b"allow", b"GET")] if status == 405 else []
        headers += [(b"connection", b"close")]  # what else was sent along is not read
        await guarded({"type": "http.response.start", "status": status, "headers": headers})
        await guarded({"type": "http.response.body", "body": text})

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not answered."""
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in (b"host", b"content-length") and name in headers:
                return 400, f"{name.decode()} is there twice"
            headers[name] = value
        if self._name(headers.get(b"host", b"")) not in self._hosts:
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

    def _name(self, host: bytes) -> str:
        """The name in a Host header, without its port."""
        text = host.decode("latin-1").lower()
        name, colon, port = text.rpartition(":")
        return name if colon and port.isdigit() else text
