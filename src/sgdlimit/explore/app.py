"""The pages and the questions they ask, all by GET, behind a guard; the address behind the token says everything.

`api/curves`, `api/kernels`, `api/refined` answer in one piece, `api/runs` line by line; all take a view as their query.
A browser that goes away, or drops a question for a newer one, does not wait any longer. Files come from the same work:
`api/theory.nc`, `api/runs.csv`.

The server listens on the loopback only. A page of another site can still send requests there: it does not know the
token in the address, and a name of its own that it points at the loopback (DNS rebinding) is not among the hosts.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._version import __version__
from ..errors import InputError
from .fields import described
from .pool import KINDS, Computation, Pool, Trouble
from .view import View, python, toml

STATIC = Path(__file__).parent / "static"
STATUS = {"invalid": 400, "refused": 422, "full": 503, "time": 504, "stopped": 409, "failed": 500, "gone": 499}
FILES = {"theory.nc": "refined", "theory.csv": "refined", "runs.nc": "runs", "runs.csv": "runs"}
FRESH = {"cache-control": "no-store"}
MEDIA = {".nc": "application/x-netcdf", ".csv": "text/csv; charset=utf-8"}
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


def make(token: str, pool: Pool, hosts: tuple[str, ...] = ()) -> Guard:
    """The application, guarded; its first curve is computed while the browser starts."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        starting = asyncio.create_task(_start(pool))
        yield
        starting.cancel()

    async def answer(request: Request) -> Response:
        """Work of a kind in one piece, runs line by line, a file of finished work, or the texts of a view."""
        name = request.path_params["name"]
        kind = FILES.get(name, name)
        if kind not in (*KINDS, "texts"):
            raise HTTPException(404)
        view = View.read(request.scope["query_string"].decode("latin-1"))
        if kind == "texts":
            words = {"python": python(view), "toml": toml(view), "address": view.query()}
            return JSONResponse(words, headers=FRESH)
        if kind == "runs":
            view.check_runs()
        work = pool.submit(kind, view.key(kind))
        if name == "runs":
            return StreamingResponse(_lines(pool, work), media_type="application/x-ndjson", headers=FRESH)
        await _finished(request, pool, work)
        if name in FILES:
            headers = FRESH | {"content-disposition": f'attachment; filename="{name}"'}
            return Response(work.files[name], media_type=MEDIA[Path(name).suffix], headers=headers)
        return Response(work.parts[-1], media_type="application/json", headers=FRESH)

    routes = [
        Route("/plotly.min.js", _drawing_library),
        Route("/api/fields", lambda _: JSONResponse({"version": __version__, "groups": described()}, headers=FRESH)),
        Route("/api/{name}", answer),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    handlers = {InputError: _refused, Trouble: _refused}
    inner = Starlette(routes=[Mount(f"/{token}", routes=routes)], lifespan=lifespan, exception_handlers=handlers)
    return Guard(inner, token, hosts)


async def _start(pool: Pool) -> None:
    """The first curve; then the processes for all other work, which would only have been in its way."""
    with suppress(Trouble):
        await _ended(pool, pool.submit("curves", View.of({}).key("curves")))
    pool.warm(*KINDS)


async def _ended(pool: Pool, work: Computation) -> None:
    async for _ in pool.follow(work):
        pass


async def _drawing_library(_: Request) -> Response:
    """From the installed package: nothing is fetched from anywhere."""
    import plotly

    script = Path(str(plotly.__file__)).parent / "package_data" / "plotly.min.js"
    return FileResponse(script, headers={"cache-control": "private, max-age=86400"})


async def _refused(_: Request, error: Exception) -> Response:
    """A request that is wrong, or has no answer, in words for the page."""
    trouble = error if isinstance(error, Trouble) else Trouble("invalid", str(error))
    return JSONResponse(trouble.words, STATUS[trouble.word], FRESH)


async def _lines(pool: Pool, work: Computation) -> AsyncIterator[bytes]:
    """Parts as they come; trouble on the way is the last line."""
    try:
        async for part in pool.follow(work):
            yield part + b"\n"
    except Trouble as trouble:
        yield json.dumps(trouble.words).encode() + b"\n"


async def _finished(request: Request, pool: Pool, work: Computation) -> None:
    """Wait for all of a computation, while the browser does."""

    waiting = asyncio.ensure_future(_ended(pool, work))
    try:
        while not (await asyncio.wait([waiting], timeout=0.1))[0]:
            if await request.is_disconnected():
                raise Trouble("gone", "the browser went away")
        waiting.result()
    finally:
        waiting.cancel()
