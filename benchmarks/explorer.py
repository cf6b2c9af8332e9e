"""How fast the explorer is, and what it stands: first curve, updates, 50 clients at once, 1000 malformed requests.

    python benchmarks/explorer.py            # a table on the screen; --json for numbers

Needs the extra `explore`; the lines on a real browser also need playwright and chromium, and are left out without.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from urllib.parse import urlsplit


def start():
    """Process, address, and when it was started."""
    begun = time.perf_counter()
    command = [sys.executable, "-c", "from sgdlimit.cli import main; main()", "explore", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http\S+", process.stdout.readline())
    assert found is not None
    return process, found[0], begun


def end(process):
    process.send_signal(signal.SIGINT)
    begun = time.perf_counter()
    code = process.wait(timeout=30)
    return code, time.perf_counter() - begun


def fetch(address):
    with urllib.request.urlopen(address, timeout=120) as answer:
        return answer.read()


def first_curve(repeats):
    """Seconds from the start of the command to the first curve; the first time fills the cache of programs."""
    found = []
    for _ in range(repeats + 1):
        process, address, begun = start()
        fetch(address + "api/curves")
        found.append(time.perf_counter() - begun)
        end(process)
    return found[1:]


def updates(address, count=30, seed=0):
    """Seconds of one update of the logistic curve at preview accuracy, each at values not met before."""
    rng = random.Random(seed)
    found = []
    for i in range(count + 3):
        query = f"delta={rng.uniform(0.5, 5):.4f}&tau={rng.uniform(0.1, 1.5):.4f}&lam={rng.uniform(0, 1):.4f}"
        begun = time.perf_counter()
        fetch(f"{address}api/curves?{query}")
        if i >= 3:
            found.append(time.perf_counter() - begun)
    return found


async def raw(netloc, message, seconds=60.0):
    """Whatever comes back for these bytes, and how long it took."""
    host, _, port = netloc.partition(":")
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(message)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), seconds)
    except (ConnectionError, TimeoutError):
        answer = b""
    finally:
        writer.close()
    return answer, time.perf_counter() - begun


def get(netloc, path, host=None):
    return f"GET {path} HTTP/1.1\r\nHost: {host or netloc}\r\nConnection: close\r\n\r\n".encode()


async def clients(netloc, path, count):
    """`count` pages that all ask for other curves at the same moment: status and seconds of each."""
    rng = random.Random(1)
    questions = [
        f"{path}api/curves?delta={rng.uniform(0.5, 5):.4f}&tau={rng.uniform(0.1, 1.5):.4f}" for i in range(count)
    ]
    return await asyncio.gather(*(raw(netloc, get(netloc, question)) for question in questions))


def malformed(netloc, path, rng):
    """One of many ways to be wrong."""
    junk = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400)))
    word = "".join(rng.choice("abc&=%#+-.019e_") for _ in range(rng.randrange(1, 60)))
    ways = [
        junk,
        junk + b"\r\n\r\n",
        get(netloc, f"{path}api/curves?{word}"),
        get(netloc, f"{path}api/curves?tau={word}"),
        get(netloc, f"{path}api/runs?dim=" + "9" * rng.randrange(5, 500)),
        get(netloc, f"{path}api/refined?loss=__import__('os')"),
        get(netloc, f"{path}api/curves?" + "tau=1&" * 400),
        get(netloc, f"{path}api/curves?tau=" + "9" * 60_000),
        get(netloc, f"{path}../../../etc/passwd"),
        get(netloc, f"{path}%2e%2e/%00"),
        get(netloc, "/"),
        get(netloc, "/wrong-token/api/curves"),
        get(netloc, path, host="evil.example"),
        f"POST {path}api/curves HTTP/1.1\r\nHost: {netloc}\r\nContent-Length: 99999999\r\n\r\n".encode() + b"x" * 5000,
        f"GET {path} HTTP/1.1\r\n".encode() + b"X: " + b"y" * 50_000 + b"\r\n\r\n",
        f"BREW {path} HTTP/9.9\r\n\r\n".encode(),
    ]
    return rng.choice(ways)


async def storm(netloc, path, count):
    """Malformed requests, 20 at a time; good ones in between. Status codes, and seconds of the good ones."""
    rng = random.Random(2)
    codes, good = {}, []
    for _ in range(count // 20):
        wrong = [raw(netloc, malformed(netloc, path, rng), 5.0) for _ in range(20)]
        *answers, (answer, seconds) = await asyncio.gather(
            *wrong, raw(netloc, get(netloc, f"{path}api/curves?tau=0.51"))
        )
        assert answer.startswith(b"HTTP/1.1 200"), answer[:80]
        good.append(seconds)
        for found, _ in answers:
            code = found[9:12].decode("latin-1") if found.startswith(b"HTTP/1.1") else "closed"
            codes[code] = codes.get(code, 0) + 1
    return codes, good


def in_browser(repeats):
    """Seconds to the first curve drawn and from a key press to the redrawn curve; all hosts that were asked."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    firsts, moves, hosts = [], [], set()
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(repeats):
            process, address, begun = start()
            page = browser.new_page()
            page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname or request.url.split(":")[0]))
            page.goto(address, wait_until="commit")
            page.wait_for_selector('[data-state="rough"], [data-state="good"]', timeout=60_000)
            firsts.append(time.perf_counter() - begun)
            page.wait_for_selector('[data-state="good"]', timeout=60_000)
            page.focus("#slide-tau")
            drawn = "document.getElementById('curves-plot').data.find(t => t.name).y.at(-1)"
            for _ in range(10):
                before, begun = page.evaluate(drawn), time.perf_counter()
                page.keyboard.press("ArrowRight")
                while page.evaluate(drawn) == before and time.perf_counter() - begun < 30:
                    time.sleep(0.005)
                moves.append(time.perf_counter() - begun)
            page.close()
            end(process)
        browser.close()
    return firsts, moves, hosts


def spread(seconds):
    """Median and largest."""
    return f"{statistics.median(seconds):.3f} s (largest {max(seconds):.3f} s, {len(seconds)} times)"


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    out = {"first curve after start": first_curve(options.repeats)}
    process, address, _ = start()
    parts = urlsplit(address)
    fetch(address + "api/curves")
    out["update, alone"] = updates(address)
    answers = asyncio.run(clients(parts.netloc, parts.path, 50))
    assert all(answer.startswith(b"HTTP/1.1 200") for answer, _ in answers), [a[:60] for a, _ in answers]
    out["50 clients at once, each"] = [seconds for _, seconds in answers]
    out["update, after them"] = updates(address, 10, seed=10)
    codes, good = asyncio.run(storm(parts.netloc, parts.path, 1000))
    out["kept curve, during 1000 malformed requests"] = good
    out["update, after those"] = updates(address, 10, seed=20)
    code, seconds = end(process)
    out["end by Ctrl-C"] = [seconds]
    seen = in_browser(options.repeats)
    hosts: set[str] = set()
    if seen is not None:
        out["first curve drawn in a browser"], out["key press to redrawn curve"], hosts = seen
    if options.json:
        print(json.dumps(out | {"codes": codes, "exit": code, "hosts": sorted(hosts)}, indent=1))
        return
    for name, values in out.items():
        print(f"{name:45s} {spread(values)}")
    print(f"{'answers to malformed requests':45s} {codes}")
    print(f"{'exit status':45s} {code}")
    print(f"{'hosts that the browser asked':45s} {', '.join(sorted(hosts)) or 'no browser here'}")


if __name__ == "__main__":
    main()
