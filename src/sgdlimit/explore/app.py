"""The pages and the questions they ask, all by GET; the address behind the token says everything.

`api/curves`, `api/kernels`, `api/refined` answer in one piece, `api/runs` line by line; all take a view as their query,
and `client`, a word by which a page is told from others. Files come from the same work: `api/theory.nc`,
`api/runs.csv`.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .._version import __version__
from ..errors import InputError, reject
from . import texts
from .fields import described
from .pool import KINDS, Computation, Pool, Trouble
from .security import App, Guard, Receive, Scope, Send
from .view import View

STATIC = Path(__file__).parent / "static"
STATUS = {"invalid": 400, "refused": 422, "full": 503, "time": 504, "superseded": 409, "failed": 500, "gone": 499}
FILES = {"theory.nc": "refined", "theory.csv": "refined", "runs.nc": "runs", "runs.csv": "runs"}
CLIENT = re.compile(r"[A-Za-z0-9_-]{1,40}")
FRESH = {"cache-control": "no-store"}
MEDIA = {".nc": "application/x-netcdf", ".csv": "text/csv; charset=utf-8"}
_NOBODIES = itertools.count()


def plotly_script() -> Path:
    """The drawing library, from the installed package: nothing is fetched from anywhere."""
    import plotly

    return Path(str(plotly.__file__)).parent / "package_data" / "plotly.min.js"


def make(token: str, pool: Pool, hosts: tuple[str, ...] = ()) -> App:
    """The application, guarded; its first curve is computed while the browser starts."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        starting = asyncio.create_task(_start(pool))
        yield
        starting.cancel()
        await pool.stop()

    async def answer(request: Request) -> Response:
        """Work of a kind in one piece, runs line by line, or a file of finished work."""
        name = request.path_params["name"]
        kind = FILES.get(name, name)
        if kind not in KINDS:
            raise HTTPException(404)
        client, view = _asked(request)
        if kind == "runs":
            view.check_runs()
        work = pool.submit(client, kind, view.runs_key() if kind == "runs" else view.theory_key())
        if name == "runs":
            return StreamingResponse(_lines(pool, client, work), media_type="application/x-ndjson", headers=FRESH)
        await _finished(request, pool, client, work)
        if name in FILES:
            headers = FRESH | {"content-disposition": f'attachment; filename="{name}"'}
            return Response(work.files[name], media_type=MEDIA[Path(name).suffix], headers=headers)
        return Response(work.parts[-1], media_type="application/json", headers=FRESH)

    routes = [
        Route("/plotly.min.js", _drawing_library),
        Route("/api/fields", lambda _: JSONResponse({"version": __version__, "groups": described()}, headers=FRESH)),
        Route("/api/texts", _texts),
        Route("/api/{name}", answer),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    inner = Starlette(routes=routes, lifespan=lifespan, exception_handlers={InputError: _refused, Trouble: _refused})

    async def at_root(scope: Scope, receive: Receive, send: Send) -> None:
        """/token is /token/: relative addresses of the page need the slash."""
        if scope["type"] == "http" and scope["path"] == "":
            await RedirectResponse(f"/{token}/", headers=FRESH)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return Guard(at_root, token, hosts)


async def _start(pool: Pool) -> None:
    """The first curve on the first worker; then the worker for long work, which would only have been in its way."""
    server = "the server itself"
    with suppress(Trouble):
        async for _ in pool.follow(server, pool.submit(server, "curves", View.of({}).theory_key())):
            pass
    pool.warm(-1)


async def _drawing_library(_: Request) -> Response:
    return FileResponse(plotly_script(), headers={"cache-control": "private, max-age=86400"})


async def _refused(_: Request, error: Exception) -> Response:
    """A request that is wrong, or has no answer, in words for the page."""
    trouble = error if isinstance(error, Trouble) else Trouble("invalid", str(error))
    headers = FRESH | ({"retry-after": "3"} if trouble.word == "full" else {})
    return JSONResponse(_words(trouble), STATUS[trouble.word], headers)


def _words(trouble: Trouble) -> dict[str, str]:
    return {"error": trouble.word, "message": trouble.message}


def _asked(request: Request) -> tuple[str, View]:
    """Who asks, and the view that is asked for."""
    query = request.scope["query_string"].decode("latin-1")
    parts = [part for part in query.split("&") if part]
    clients = [part.removeprefix("client=") for part in parts if part.startswith("client=")]
    if len(clients) > 1 or (clients and not CLIENT.fullmatch(clients[0])):
        raise reject("client", clients, "it must be one word of letters and digits")
    view = View.read("&".join(part for part in parts if not part.startswith("client=")))
    return clients[0] if clients else f"nobody {next(_NOBODIES)}", view


async def _texts(request: Request) -> Response:
    _, view = _asked(request)
    words = {"python": texts.python(view), "toml": texts.toml(view), "address": view.query()}
    return JSONResponse(words, headers=FRESH)


async def _lines(pool: Pool, client: str, work: Computation) -> AsyncIterator[bytes]:
    """Parts as they come; trouble on the way is the last line."""
    try:
        async for part in pool.follow(client, work):
            yield part + b"\n"
    except Trouble as trouble:
        yield json.dumps(_words(trouble)).encode() + b"\n"


async def _finished(request: Request, pool: Pool, client: str, work: Computation) -> None:
    """Wait for all of a computation; if the browser goes away before, nobody waits for it any more."""

    async def end() -> None:
        async for _ in pool.follow(client, work):
            pass

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise Trouble("gone", "the browser went away")

    waiting = [asyncio.ensure_future(end()), asyncio.ensure_future(gone())]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
