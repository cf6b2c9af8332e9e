"""The pages and the questions they ask, all by GET; the address behind the token says everything.

`api/curves`, `api/kernels`, `api/refined` answer in one piece, `api/runs` line by line; all take a view as their query.
A browser that goes away, or drops a question for a newer one, does not wait any longer. Files come from the same work:
`api/theory.nc`, `api/runs.csv`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .._version import __version__
from ..errors import InputError
from .fields import described
from .pool import KINDS, Computation, Pool, Trouble
from .security import Guard
from .view import View, python, toml

STATIC = Path(__file__).parent / "static"
STATUS = {"invalid": 400, "refused": 422, "full": 503, "time": 504, "stopped": 409, "failed": 500, "gone": 499}
FILES = {"theory.nc": "refined", "theory.csv": "refined", "runs.nc": "runs", "runs.csv": "runs"}
FRESH = {"cache-control": "no-store"}
MEDIA = {".nc": "application/x-netcdf", ".csv": "text/csv; charset=utf-8"}


def make(token: str, pool: Pool, hosts: tuple[str, ...] = ()) -> Guard:
    """The application, guarded; its first curve is computed while the browser starts."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        starting = asyncio.create_task(_start(pool))
        yield
        starting.cancel()

    async def answer(request: Request) -> Response:
        """Work of a kind in one piece, runs line by line, or a file of finished work."""
        name = request.path_params["name"]
        kind = FILES.get(name, name)
        if kind not in KINDS:
            raise HTTPException(404)
        view = _view(request)
        if kind == "runs":
            view.check_runs()
        work = pool.submit(kind, view.runs_key() if kind == "runs" else view.theory_key())
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
        Route("/api/texts", _texts),
        Route("/api/{name}", answer),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]
    handlers = {InputError: _refused, Trouble: _refused}
    inner = Starlette(routes=[Mount(f"/{token}", routes=routes)], lifespan=lifespan, exception_handlers=handlers)
    return Guard(inner, token, hosts)


async def _start(pool: Pool) -> None:
    """The first curve; then the processes for all other work, which would only have been in its way."""
    with suppress(Trouble):
        async for _ in pool.follow(pool.submit("curves", View.of({}).theory_key())):
            pass
    pool.warm(*KINDS)


async def _drawing_library(_: Request) -> Response:
    """From the installed package: nothing is fetched from anywhere."""
    import plotly

    script = Path(str(plotly.__file__)).parent / "package_data" / "plotly.min.js"
    return FileResponse(script, headers={"cache-control": "private, max-age=86400"})


async def _refused(_: Request, error: Exception) -> Response:
    """A request that is wrong, or has no answer, in words for the page."""
    trouble = error if isinstance(error, Trouble) else Trouble("invalid", str(error))
    return JSONResponse(trouble.words, STATUS[trouble.word], FRESH)


def _view(request: Request) -> View:
    return View.read(request.scope["query_string"].decode("latin-1"))


async def _texts(request: Request) -> Response:
    view = _view(request)
    words = {"python": python(view), "toml": toml(view), "address": view.query()}
    return JSONResponse(words, headers=FRESH)


async def _lines(pool: Pool, work: Computation) -> AsyncIterator[bytes]:
    """Parts as they come; trouble on the way is the last line."""
    try:
        async for part in pool.follow(work):
            yield part + b"\n"
    except Trouble as trouble:
        yield json.dumps(trouble.words).encode() + b"\n"


async def _finished(request: Request, pool: Pool, work: Computation) -> None:
    """Wait for all of a computation, while the browser does."""

    async def end() -> None:
        async for _ in pool.follow(work):
            pass

    waiting = asyncio.ensure_future(end())
    try:
        while not (await asyncio.wait([waiting], timeout=0.1))[0]:
            if await request.is_disconnected():
                raise Trouble("gone", "the browser went away")
        waiting.result()
    finally:
        waiting.cancel()
