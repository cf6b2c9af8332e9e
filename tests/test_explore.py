"""The explorer without a browser: views, texts, the guard, the queue."""

import asyncio
import itertools
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit import describe
from sgdlimit.cli.specification import read, solve_specification
from sgdlimit.explore import view as texts
from sgdlimit.explore.app import Guard
from sgdlimit.explore.fields import FIELDS, Choice, Number, described, spell
from sgdlimit.explore.pool import Kind, Pool, Trouble
from sgdlimit.explore.serve import local
from sgdlimit.explore.view import View

pytest.importorskip("starlette", reason="the explorer needs starlette")
pytest.importorskip("uvicorn", reason="the explorer needs uvicorn")
pytest.importorskip("plotly", reason="the explorer needs plotly")

SMALL = "t_max=1&tol=0.05&dim=40&trials=2&sigma=0.3"
STEP = "momentum=heavy_ball&friction=2.0&clip=sample&threshold=0.5&average=ema"
NETWORK = "loss=two_layer&labels=two_layer&init=0.5&readout=trained&readout_rate=0.5&curves=norm,readout"


# --- views ---


def options(name):
    found = FIELDS[name]
    assert isinstance(found, Choice)
    return tuple(found.options)


def views():
    """Every option of every choice at least once, with all that goes with it."""
    for loss, labels in itertools.product(options("loss"), options("labels")):
        given = {"loss": loss, "labels": labels, "data": "mixture" if labels == "classes" else "iid"}
        try:
            yield View.of(given)
        except sl.InputError:
            assert loss in ("logistic", "hinge", "smooth_hinge", "exponential")
    for name in ("penalty", "teacher", "algorithm", "momentum", "clip", "average"):
        for option in options(name):
            yield View.of({name: option})
    yield View.of({"data": "power_law"})
    yield View.of({"loss": "two_layer", "labels": "two_layer", "activation": "tanh", "width": 3, "init": 0.5})
    yield View.read(NETWORK)
    yield View.read(f"{NETWORK}&width=1&{STEP}")


def test_a_view_and_its_address_are_the_same():
    addresses = set()
    for view in views():
        assert View.read(view.query()) == view
        addresses.add(view.query())
    assert len(addresses) > 40
    odd = View.read("delta=0.1&lam=1e-3&tau=.25&curves=norm,overlap")
    assert (odd["delta"], odd["lam"], odd["tau"], odd["curves"]) == (0.1, 0.001, 0.25, ("overlap", "norm"))
    assert View.read(odd.query()) == odd


def test_every_view_is_a_problem_of_the_library():
    for view in views():
        problem = describe.problem_from_words(view.problem)
        algorithm = describe.algorithm_from_words(view.algorithm)
        assert problem.sample_ratio == view["delta"]
        assert type(algorithm).__name__ == view.algorithm["name"]


def test_fields_without_a_meaning_do_not_tell_views_apart():
    assert View.read("algorithm=gradient_flow&tau=0.7") == View.read("algorithm=gradient_flow")
    assert View.read("width=3") == View.read("")
    assert View.read("dim=500").key("curves") == View.read("trials=7&batch=9&kernel=R_ell").key("curves") == ""
    assert View.read("tol=0.05").key("runs") == "" != View.read("tol=0.05").key("refined")


def test_momentum_clipping_averages_and_a_trained_layer_are_off_unless_chosen():
    off = View.read("friction=3&threshold=2&ema_rate=0.02&readout=trained&readout_rate=3")
    assert off == View.read("")
    assert off.query() == ""
    network = View.read("loss=two_layer&labels=two_layer&readout_rate=2")
    assert "readout" not in network.problem["loss"]
    assert "step" not in off.algorithm
    for options in (off.theory_options, off.kernel_options, off.runs_options):
        assert "averages" not in options
    assert "overlap" not in texts.python(View.read("labels=random_signs&curves=overlap,norm"))
    for text in map(texts.python, (off, View.read("curves=readout"), network)):
        assert not any(word in text for word in ("Step", "average", "Trained", "readout"))


def test_what_is_chosen_is_said_to_the_library():
    view = View.read(f"{NETWORK}&{STEP}")
    problem, algorithm = describe.problem_from_words(view.problem), describe.algorithm_from_words(view.algorithm)
    assert problem.loss == sl.TwoLayer("erf", readout=sl.Trained([1.0, 0.5], rate=0.5))
    assert algorithm == sl.SGD(0.5, 4, step=sl.Step(clip=0.5, momentum=sl.HeavyBall(friction=2.0)))
    assert view.theory_options["averages"] == view.runs_options["averages"] == {"ema": {"name": "EMA", "rate": 1.0}}
    faster = View.read(f"{NETWORK}&{STEP}&ema_rate=3")
    assert faster.key("kernels") == view.key("kernels") != view.key("curves") != faster.key("curves")


@pytest.mark.parametrize("step", [sl.Step(), sl.Step(clip=0.5, momentum=sl.HeavyBall(1.0))], ids=["plain", "parts"])
def test_the_limit_knows_the_batch_through_the_temperature_alone(step):
    """That is why the batch is no part of the theory's key."""
    problem = describe.problem_from_words(View.read("").problem)
    found = [sl.solve(problem, sl.SGD(0.5, batch, step=step), t_max=1.0, samples=4096) for batch in (1, 4)]
    for name in found[0].variables:
        np.testing.assert_array_equal(found[0][name], found[1][name])


@pytest.mark.parametrize(
    ("query", "name", "remedy"),
    [
        ("tau=-1", "tau", "0.01 to 10"),
        ("tau=nan", "tau", "0.01 to 10"),
        ("tau=inf", "tau", "0.01 to 10"),
        ("tau=1e999", "tau", "0.01 to 10"),
        ("tau=1_0", "tau", "0.01 to 10"),
        ("tau=٣", "tau", "0.01 to 10"),
        ("tau=", "tau", "0.01 to 10"),
        ("dim=1e3", "dim", "20 to 4000"),
        ("dim=" + "9" * 50, "dim", "20 to 4000"),
        ("width=0&loss=two_layer", "width", "1 to 8"),
        ("loss=__import__", "loss", "logistic"),
        ("curves=", "curves", "train_error"),
        ("curves=norm,nothing", "curves", "train_error"),
        ("seed=4294967296", "seed", "4294967295"),
        ("nothing=1", "nothing", "unknown field"),
        ("tau=1&tau=2", "tau", "twice"),
        ("loss=" + "x" * 500, "loss", "logistic"),
        ("labels=linear", "labels", "sign"),
        ("data=mixture", "labels", "classes"),
        ("labels=classes", "data", "mixture"),
        ("momentum=yes", "momentum", "heavy_ball"),
        ("momentum=heavy_ball&friction=0", "friction", "0.05 to 20"),
        ("clip=0.5", "clip", "sample"),
        ("clip=sample&threshold=-1", "threshold", "0.01 to 100"),
        ("average=ema&ema_rate=nan", "ema_rate", "0.02 to 50"),
        ("average=ema&ema_rate=0.1", "ema_rate", "longer than t = 6; raise it"),
        ("readout=free", "readout", "trained"),
        ("readout_rate=-1", "readout_rate", "0 to 10"),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(query, name, remedy):
    with pytest.raises(sl.InputError, match=rf"^{name}: .*{re.escape(remedy)}"):
        View.read(query)


def test_addresses_without_end_are_refused():
    with pytest.raises(sl.InputError, match="address"):
        View.read("tau=1&" * 5000)
    with pytest.raises(sl.InputError, match="unknown field"):
        View.read("&".join("a=1" for _ in range(400)))


def test_runs_that_do_not_fit_say_what_does():
    view = View.read("dim=4000&delta=10")
    with pytest.raises(sl.InputError, match=r"dim: got 4000.*d ≤ 1410"):
        view.check_runs()
    View.read("dim=1410&delta=10").check_runs()


def test_the_table_for_the_page_is_complete_and_plain():
    table = json.loads(json.dumps(described()))
    names = [f["name"] for group in table for f in group["fields"]]
    assert names == list(FIELDS)
    for f in FIELDS.values():
        assert f.parse(spell(f.default)) == f.default
        for other, allowed in f.when.items():
            assert set(allowed) <= set(options(other))
        if isinstance(f, Number) and f.slider:
            assert f.least <= f.slider[0] < f.slider[1] <= f.most
            assert f.parse(spell(f.slider[0])) == f.slider[0]


# --- texts ---


def test_every_text_says_what_the_view_says(tmp_path):
    """Parsed, not run: the problem and the algorithm are those of the view."""
    file = tmp_path / "view.toml"
    for view in views():
        file.write_text(texts.toml(view))
        tomllib.loads(file.read_text())
        told = read(file)
        space: dict = {}
        head = texts.python(view).split("theory = ")[0]
        exec(head, space)
        assert told.problem == space["problem"] == describe.problem_from_words(view.problem)
        assert told.algorithm == space["algorithm"] == describe.algorithm_from_words(view.algorithm)


def told(kind, query):
    from sgdlimit.explore.work import KINDS

    parts, files = [], {}

    def tell(content, name=""):
        if name:
            files[name] = content
        else:
            parts.append(json.loads(content))

    KINDS[kind](query, tell)
    return parts, files


@pytest.mark.parametrize("query", [SMALL, f"{SMALL}&{NETWORK}&width=1&{STEP}"], ids=["plain", "parts"])
def test_python_and_toml_reproduce_the_view(query, tmp_path, monkeypatch):
    """The curves, kernels and runs of the page are those of the texts, to the last bit that is stored."""
    monkeypatch.chdir(tmp_path)
    view = View.read(query)
    space: dict = {}
    exec(texts.python(view), space)
    parts, files = told("refined", query)
    (tmp_path / "page.nc").write_bytes(files["theory.nc"])
    (tmp_path / "view.toml").write_text(texts.toml(view))
    page = sl.load("page.nc")
    shell = solve_specification(read(tmp_path / "view.toml"), "auto")
    for name in page.variables:
        np.testing.assert_array_equal(page[name], space["theory"][name], err_msg=name)
        np.testing.assert_array_equal(page[name], shell[name], err_msg=name)
    streamed, files = told("runs", query)
    (tmp_path / "runs.nc").write_bytes(files["runs.nc"])
    runs = sl.load("runs.nc")
    for name in runs.curves:
        np.testing.assert_array_equal(runs[name], space["runs"][name], err_msg=name)
    every = {"norm", "readout", "ema.norm", "ema.readout"} if view.trained else {"norm"}
    for shown in (parts[0]["curves"], streamed[0]["records"][0]["values"]):
        assert {name for name in shown if name.endswith(("norm", "readout"))} == every
    for name in every - {"norm", "readout"}:
        average, own = name.split(".")
        np.testing.assert_array_equal(runs.averages[average][own], space["runs"].averages[average][own])
        last = space["theory"].averages[average][own][-1].item()
        assert math.isclose(parts[0]["curves"][name]["value"][-1], last, rel_tol=1e-5)
    (kernels,), _ = told("kernels", query)
    assert len(kernels["weights"]) == 3
    assert list(kernels["kernels"]) == (["C_theta", "R_theta", "R_ell"] if "C_theta" in space["kernels"] else [])
    for name in kernels["kernels"]:
        shown = np.array(kernels["kernels"][name], dtype=float)
        later = np.isfinite(shown)
        np.testing.assert_allclose(shown[later], space["kernels"][name][later, 0, 0], rtol=1e-5)


def test_what_the_solver_refuses_beside_momentum_names_a_field():
    with pytest.raises(sl.InputError, match=r"^penalty: .*kink"):
        told("kernels", "penalty=l1&momentum=heavy_ball")


def test_the_parts_of_runs_are_the_runs():
    parts, files = told("runs", SMALL)
    records = [record for part in parts for record in part.get("records", ())]
    assert parts[-1]["status"] == "complete"
    table = np.genfromtxt(files["runs.csv"].decode().splitlines()[1:], delimiter=",", names=True)
    assert len(records) == len(table) > 40
    for record, row in zip(sorted(records, key=lambda r: (r["trial"], r["time"])), table, strict=True):
        assert record["trial"] == row["trial"]
        assert math.isclose(record["values"]["norm"], row["norm"], rel_tol=1e-5, abs_tol=1e-9)


def test_a_density_integrates_to_one():
    (kernels,), _ = told("kernels", SMALL)
    assert [law["time"] for law in kernels["weights"]] == pytest.approx([0.25, 0.5, 1.0], abs=0.05)
    for law in kernels["weights"]:
        assert 0.99 < np.sum(np.array(law["density"]) * np.diff(law["edges"])) <= 1.0001


@pytest.mark.slow
def test_a_diverged_view_is_an_answer_without_holes():
    (part,), _ = told("curves", "loss=square&labels=linear&tau=6&t_max=6&curves=norm")
    assert part["status"] == "diverged"
    assert "largest stable temperature" in part["message"]
    assert 0 < len(part["time"]) == len(part["curves"]["norm"]["value"])


# --- the queue ---

KINDS = {
    "echo": Kind("quick", 20.0),
    "count": Kind("quick", 20.0),
    "die": Kind("quick", 20.0),
    "raises": Kind("quick", 20.0),
    "refuses": Kind("quick", 20.0),
    "stream": Kind("slow", 20.0, long=True),
    "sleep": Kind("slow", 20.0, long=True),
}


def pooled(body, **options):
    """Run `body(pool)` in a loop of its own; every process must be gone afterwards."""

    async def outer():
        pool = Pool(**({"module": "explore_work", "kinds": KINDS} | options))
        try:
            return await asyncio.wait_for(body(pool), 60)
        finally:
            await pool.stop()
            assert multiprocessing.active_children() == []

    return asyncio.run(outer())


async def heard(pool, kind, query="1"):
    return [part async for part in pool.follow(pool.submit(kind, query))]


def pids():
    return {child.pid for child in multiprocessing.active_children()}


def test_the_queue_does_what_it_is_told_and_survives_what_goes_wrong():
    async def body(pool):
        assert await heard(pool, "echo", "hello") == [b'{"said": "hello"}']
        assert await heard(pool, "stream", "40") == [b"%d" % i for i in range(40)]
        assert pool.submit("stream", "40").files == {"numbers.csv": b"a file"}
        with pytest.raises(Trouble, match="it must be smaller") as refused:
            await heard(pool, "refuses")
        assert refused.value.word == "refused"
        with pytest.raises(Trouble, match="ZeroDivisionError: by hand"):
            await heard(pool, "raises")
        before = pids()
        with pytest.raises(Trouble, match="died"):
            await heard(pool, "die")
        assert await heard(pool, "echo", "again") == [b'{"said": "again"}']
        assert pids() != before

    pooled(body)


def test_equal_work_is_done_once_and_kept():
    async def body(pool):
        both = await asyncio.gather(heard(pool, "count", "x"), heard(pool, "count", "x"))
        assert both == [[b"1"], [b"1"]]
        assert await heard(pool, "count", "x") == [b"1"]
        assert await heard(pool, "count", "y") == [b"2"]

    pooled(body)


@pytest.mark.parametrize("wait", [0.0, 0.5, 3.0])
def test_what_nobody_waits_for_is_stopped(wait):
    """Before its process is there, while that begins, and in the middle of it; the process lives on."""

    async def body(pool):
        if wait > 1:
            pool.warm("sleep")
        first = asyncio.ensure_future(heard(pool, "sleep", "15"))
        waits = asyncio.ensure_future(heard(pool, "sleep", "14"))
        await asyncio.sleep(wait)
        before = pids()
        begin = time.monotonic()
        first.cancel()
        waits.cancel()
        assert (await heard(pool, "sleep", "0.2"))[-1] == b'{"slept": true}'
        assert time.monotonic() - begin < 10
        assert before <= pids()

    pooled(body)


def test_work_goes_on_while_somebody_waits_for_it():
    async def body(pool):
        first, second = (asyncio.ensure_future(heard(pool, "sleep", "1")) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        assert (await second)[-1] == b'{"slept": true}'

    pooled(body)


def test_a_stuck_request_blocks_nobody_and_ends_with_its_process():
    stuck = KINDS | {"sleep": Kind("slow", 2.5, long=True)}

    async def body(pool):
        await heard(pool, "echo", "warm")
        long = [asyncio.ensure_future(heard(pool, "sleep", seconds)) for seconds in ("30", "31", "32")]
        await asyncio.sleep(0.2)
        for i in range(5):
            begin = time.monotonic()
            await heard(pool, "echo", str(i))
            assert time.monotonic() - begin < 1.0
        with pytest.raises(Trouble, match=r"longer than 2\.5 s") as told:
            await long[0]
        assert told.value.word == "time"
        for job in long[1:]:
            job.cancel()

    pooled(body, kinds=stuck)


def test_a_full_queue_says_so():
    async def body(pool):
        waiting = [asyncio.ensure_future(heard(pool, "sleep", f"1{i}")) for i in range(3)]
        await asyncio.sleep(0.1)
        with pytest.raises(Trouble) as told:
            pool.submit("sleep", "19")
        assert told.value.word == "full"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await heard(pool, "echo", "room again")

    pooled(body, most_open=3)


# --- the guard ---


def asked(token="secret", hosts=(), **changed):
    """Status and headers of one request to a guarded application that answers with its path."""
    seen = []

    async def inner(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def send(message):
        seen.append(message)

    scope = {"type": "http", "method": "GET", "path": f"/{token}/api", "raw_path": b"", "query_string": b""}
    headers = {b"host": b"127.0.0.1:80"} | changed.pop("headers", {})
    scope |= {"headers": list(headers.items())} | changed
    asyncio.run(Guard(inner, "secret", hosts)(scope, None, send))
    return seen[0]["status"], dict(seen[0]["headers"]), seen[1]["body"]


def test_the_guard_lets_through_what_is_meant_for_it():
    status, headers, body = asked()
    assert (status, body) == (200, b"/secret/api")
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for host in (b"localhost", b"LOCALHOST:8000", b"[::1]:8000", b"127.0.0.1"):
        assert asked(headers={b"host": host})[0] == 200
    assert asked(hosts=("box.lan",), headers={b"host": b"box.lan:8000"})[0] == 200


@pytest.mark.parametrize(
    ("status", "changed"),
    [
        (421, {"headers": {b"host": b"evil.example"}}),
        (421, {"headers": {b"host": b"127.0.0.1.evil.example:80"}}),
        (421, {"headers": {b"host": b""}}),
        (421, {"headers": {b"host": b"box.lan"}}),
        (405, {"method": "POST"}),
        (405, {"method": "DELETE"}),
        (403, {"path": "/"}),
        (403, {"path": "/api"}),
        (403, {"path": "/secre/api"}),
        (403, {"path": "/secret2/api"}),
        (403, {"path": "/sécret/\udcff"}),
        (413, {"headers": {b"host": b"localhost", b"content-length": b"5"}}),
        (413, {"headers": {b"host": b"localhost", b"transfer-encoding": b"chunked"}}),
        (414, {"query_string": b"a" * 5000}),
        (403, {"headers": {b"host": b"localhost", b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"cors"}}),
    ],
)
def test_the_guard_stops_the_rest(status, changed):
    found, headers, _ = asked(**changed)
    assert found == status
    assert b"content-security-policy" in headers


def test_addresses_of_this_machine():
    assert all(map(local, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(local, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


# --- the whole, as the command starts it ---


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-c", "from sgdlimit.cli import main; main()", "explore", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = re.search(r"http\S+", process.stdout.readline())
    assert address is not None
    yield address[0], process
    if process.poll() is None:
        process.kill()
    process.wait()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def get(address, **options):
    """Status and content."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, **options), timeout=60) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def test_the_server_answers_and_refuses_and_ends_with_all_its_processes(server):
    address, process = server
    status, page, headers = get(address)
    assert status == 200
    assert b"plotly.min.js" in page
    assert "script-src 'self'" in headers["content-security-policy"]
    for name in re.findall(rb'(?:src|href)="([^"#]+)"', page):
        assert get(address + name.decode())[0] == 200
    assert json.loads(get(address + "api/fields")[1])["version"] == sl.__version__
    for path in ("api/curves", "api/theory.csv", "api/texts"):
        status, body, _ = get(address + path + "?tau=-3")
        assert status == 400
        assert json.loads(body)["message"].startswith("tau: got")
    assert get(address.rstrip("/"))[1] == page
    assert get(address + "nothing")[0] == 404
    assert get(address + "../../pyproject.toml")[0] in (403, 404)
    root = urllib.parse.urlsplit(address)
    assert len(root.path.strip("/")) >= 32
    assert get(f"http://{root.netloc}/")[0] == 403
    assert get(address, headers={"Host": "evil.example"})[0] == 421
    assert get(address, data=b"x")[0] == 405
    status, body, _ = get(address + "api/curves?" + "t_max=1")
    assert status == 200
    assert json.loads(body)["status"] == "complete"
    said = json.loads(get(address + "api/texts?tau=0.7")[1])
    assert "temperature=0.7" in said["python"]
    assert "temperature = 0.7" in said["toml"]
    assert said["address"] == "tau=0.7"
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
    )
    pids = [int(pid) for pid in children.stdout.split()]
    assert pids
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    until = time.monotonic() + 5
    while any(map(alive, pids)):
        assert time.monotonic() < until, "workers outlive their server"
        time.sleep(0.05)


def test_without_the_extra_the_command_says_what_to_install(monkeypatch):
    from typer.testing import CliRunner

    from sgdlimit.cli.app import app
    from sgdlimit.explore import serve

    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None)
    out = CliRunner().invoke(app, ["explore"])
    assert out.exit_code == 2
    assert 'pip install "sgdlimit[explore]"' in out.stderr


def test_a_port_that_is_taken_is_refused(server):
    from sgdlimit.explore.serve import explore

    with pytest.raises(sl.InputError, match="port"):
        explore(port=70000, browser=False)
    with pytest.raises(sl.InputError, match="cannot listen"):
        explore("203.0.113.7", 0, browser=False)


def test_the_server_needs_no_jax():
    code = (
        "import sys, sgdlimit.explore.app, sgdlimit.explore.serve; print('jax' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
