"""The pages and the questions they ask, all by GET; the address behind the token says everything.

`api/curves`, `api/kernels`, `api/refined` answer in one piece, `api/runs` line by line; all take a view as their query,
and `client`, a word by which a page is told from others. Files come from the same work: `api/theory.nc`,
`api/runs.csv`.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from .._version import __version__
from ..errors import InputError, reject
from . import texts
from .fields import described
from .pool import Computation, Pool, Trouble
from .security import App, Guard, Receive, Scope, Send
from .view import View

STATIC = Path(__file__).parent / "static"
PAGES = {"": "index.html"} | {file.name: file.name for file in sorted(STATIC.iterdir()) if file.is_file()}
STATUS = {"invalid": 400, "refused": 422, "full": 503, "time": 504, "superseded": 409, "failed": 500, "gone": 499}
FILES = {"theory.nc": "refined", "theory.csv": "refined", "runs.nc": "runs", "runs.csv": "runs"}
CLIENT = re.compile(r"[A-Za-z0-9_-]{1,40}")
FRESH = {"cache-control": "no-store"}
MEDIA = {".nc": "application/x-netcdf", ".csv": "text/csv; charset=utf-8"}
Endpoint = Callable[[Request], Awaitable[Response]]
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

    routes = [
        *(Route(f"/{path}", _page(STATIC / name)) for path, name in PAGES.items()),
        Route("/plotly.min.js", _page(plotly_script(), "private, max-age=86400")),
        Route("/api/fields", lambda _: JSONResponse({"version": __version__, "groups": described()}, headers=FRESH)),
        Route("/api/texts", _texts),
        *(Route(f"/api/{kind}", _whole(kind, pool)) for kind in ("curves", "kernels", "refined")),
        Route("/api/runs", _lines(pool)),
        *(Route(f"/api/{name}", _file(name, kind, pool)) for name, kind in FILES.items()),
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


def _page(file: Path, cache: str = "no-cache") -> Endpoint:
    async def page(_: Request) -> Response:
        return FileResponse(file, headers={"cache-control": cache})

    return page


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


def _submitted(request: Request, kind: str, pool: Pool) -> tuple[str, Computation]:
    """Client, and the computation that it asks for."""
    client, view = _asked(request)
    if kind == "runs":
        view.check_runs()
    return client, pool.submit(client, kind, view.runs_key() if kind == "runs" else view.theory_key())


async def _texts(request: Request) -> Response:
    _, view = _asked(request)
    words = {"python": texts.python(view), "toml": texts.toml(view), "address": view.query()}
    return JSONResponse(words, headers=FRESH)


async def _finished(request: Request, kind: str, pool: Pool) -> Computation:
    """A computation that has ended; if the browser goes away before, nobody waits for it any more."""
    client, work = _submitted(request, kind, pool)

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
        return work
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _whole(kind: str, pool: Pool) -> Endpoint:
    """An answer in one piece."""

    async def answer(request: Request) -> Response:
        work = await _finished(request, kind, pool)
        return Response(work.parts[-1], media_type="application/json", headers=FRESH)

    return answer


def _lines(pool: Pool) -> Endpoint:
    """Runs, line by line; trouble on the way is the last line."""

    async def answer(request: Request) -> Response:
        client, work = _submitted(request, "runs", pool)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async for part in pool.follow(client, work):
                    yield part + b"\n"
            except Trouble as trouble:
                yield json.dumps(_words(trouble)).encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson", headers=FRESH)

    return answer


def _file(name: str, kind: str, pool: Pool) -> Endpoint:
    """A file of finished work, which is done now if it has not been."""

    async def answer(request: Request) -> Response:
        work = await _finished(request, kind, pool)
        headers = FRESH | {"content-disposition": f'attachment; filename="{name}"'}
        return Response(work.files[name], media_type=MEDIA[Path(name).suffix], headers=headers)

    return answer
