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
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from .._version import __version__
from ..errors import InputError, reject
from . import texts
from .fields import described
from .pool import Job, Pool, Trouble
from .security import App, Guard
from .view import View

STATIC = Path(__file__).parent / "static"
PAGES = {"": "index.html"} | {file.name: file.name for file in sorted(STATIC.iterdir()) if file.is_file()}
STATUS = {"invalid": 400, "refused": 422, "full": 503, "time": 504, "superseded": 409, "failed": 500, "gone": 499}
FILES = {"theory.nc": "refined", "theory.csv": "refined", "runs.nc": "runs", "runs.csv": "runs"}
CLIENT = re.compile(r"[A-Za-z0-9_-]{1,40}")
FRESH = {"cache-control": "no-store"}
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
        *(Route(f"/{path}", _page(name)) for path, name in PAGES.items()),
        Route("/plotly.min.js", _drawing_library),
        Route("/api/fields", lambda _: JSONResponse({"version": __version__, "groups": described()}, headers=FRESH)),
        Route("/api/texts", _texts),
        *(Route(f"/api/{kind}", _whole(kind, pool)) for kind in ("curves", "kernels", "refined")),
        Route("/api/runs", _lines(pool)),
        *(Route(f"/api/{name}", _file(name, kind, pool)) for name, kind in FILES.items()),
    ]
    inner = Starlette(routes=routes, lifespan=lifespan)

    async def at_root(scope: Any, receive: Any, send: Any) -> None:
        """/token is /token/: relative addresses of the page need the slash."""
        if scope["type"] == "http" and scope["path"] == "":
            await RedirectResponse(f"/{token}/", headers=FRESH)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return Guard(at_root, token, hosts)


async def _start(pool: Pool) -> None:
    """The first curve on the first worker; then the second worker, which would only have been in its way."""
    server = "the server itself"
    with suppress(Trouble):
        async for _ in pool.follow(server, pool.submit(server, "curves", View.of({}).theory_key())):
            pass
    pool.warm(1)


def _page(name: str) -> Any:
    async def page(_: Request) -> Response:
        return FileResponse(STATIC / name, headers={"cache-control": "no-cache"})

    return page


async def _drawing_library(_: Request) -> Response:
    return FileResponse(plotly_script(), headers={"cache-control": "private, max-age=86400"})


def _asked(request: Request, kind: str) -> tuple[str, View, str]:
    """Client, view, and what the work depends on."""
    query = request.scope["query_string"].decode("latin-1")
    parts = [part for part in query.split("&") if part]
    clients = [part.removeprefix("client=") for part in parts if part.startswith("client=")]
    if len(clients) > 1 or (clients and not CLIENT.fullmatch(clients[0])):
        raise reject("client", clients, "it must be one word of letters and digits")
    view = View.read("&".join(part for part in parts if not part.startswith("client=")))
    if kind == "runs":
        view.check_runs()
    return (
        clients[0] if clients else f"nobody {next(_NOBODIES)}",
        view,
        view.runs_key() if kind == "runs" else view.theory_key(),
    )


def _trouble(word: str, message: str) -> Response:
    headers = FRESH | ({"retry-after": "3"} if word == "full" else {})
    return JSONResponse({"error": word, "message": message}, STATUS[word], headers)


def _invalid(error: InputError) -> Response:
    return _trouble("invalid", str(error))


async def _texts(request: Request) -> Response:
    try:
        _, view, _ = _asked(request, "texts")
    except InputError as error:
        return _invalid(error)
    words = {"python": texts.python(view), "toml": texts.toml(view), "address": view.query()}
    return JSONResponse(words, headers=FRESH)


async def _gone(request: Request) -> None:
    """Returns when the browser has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _until_done(request: Request, pool: Pool, client: str, job: Job) -> list[bytes]:
    """All parts of a job; if the browser goes away before, nobody waits for it any more."""

    async def gather() -> list[bytes]:
        return [part async for part in pool.follow(client, job)]

    work, gone = asyncio.ensure_future(gather()), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Trouble("gone", "the browser went away")
        return work.result()
    finally:
        for task in (work, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Trouble):
                await task


def _whole(kind: str, pool: Pool) -> Any:
    """An answer in one piece."""

    async def answer(request: Request) -> Response:
        try:
            client, _, query = _asked(request, kind)
            parts = await _until_done(request, pool, client, pool.submit(client, kind, query))
        except InputError as error:
            return _invalid(error)
        except Trouble as trouble:
            return _trouble(trouble.word, trouble.message)
        return Response(parts[-1], media_type="application/json", headers=FRESH)

    return answer


def _lines(pool: Pool) -> Any:
    """Runs, line by line; trouble on the way is the last line."""

    async def answer(request: Request) -> Response:
        try:
            client, _, query = _asked(request, "runs")
            job = pool.submit(client, "runs", query)
        except InputError as error:
            return _invalid(error)
        except Trouble as trouble:
            return _trouble(trouble.word, trouble.message)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async for part in pool.follow(client, job):
                    yield part + b"\n"
            except Trouble as trouble:
                yield json.dumps({"error": trouble.word, "message": trouble.message}).encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson", headers=FRESH)

    return answer


def _file(name: str, kind: str, pool: Pool) -> Any:
    """A file of finished work, which is done now if it has not been."""

    async def answer(request: Request) -> Response:
        try:
            client, _, query = _asked(request, kind)
            job = pool.submit(client, kind, query)
            await _until_done(request, pool, client, job)
        except InputError as error:
            return _invalid(error)
        except Trouble as trouble:
            return _trouble(trouble.word, trouble.message)
        headers = FRESH | {"content-disposition": f'attachment; filename="{name}"'}
        kinds = {"nc": "application/x-netcdf", "csv": "text/csv; charset=utf-8"}
        return Response(job.files[name], media_type=kinds[name.rpartition(".")[2]], headers=headers)

    return answer
