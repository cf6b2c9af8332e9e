"""Random calls and harmed files, thousands of them: how many end how, and every promise that is broken.

    python benchmarks/fuzz.py --valid 2000 --invalid 2000 --toml 1000 --netcdf 1000
    python benchmarks/fuzz.py --valid 500 --first 20 --seconds 600      # blocks 20, 21, …; stops after ten minutes

Cases come in blocks of 50 that depend on their number alone, so that a run can be continued (`--first`) or shared out.
Each case is tried in another process with a time limit: one that hangs or crashes is a broken promise too. The exit
status is 1 if there is any. What is promised stands in tests/promises.py and tests/damage.py.
"""

import argparse
import itertools
import multiprocessing
import queue
import re
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

BLOCK = 50
LIMIT = {"valid": 90.0, "invalid": 60.0, "toml": 30.0, "netcdf": 30.0}
"""Seconds for one case, compiling on a busy machine included."""
ADDRESS_SPACE = 16 * 2**30
"""Bytes that a process may ask for, so that a case that wants more fails alone."""
SHOWN = 5
"""How often one kind of failure is shown."""
RESTART = 400
"""Cases after which a process is replaced: compiled programs are never forgotten."""


def strategy(kind: str, pool: int) -> Any:
    import damage
    import language
    import wrong

    return {
        "valid": lambda: language.valid(pool, extreme=True),
        "invalid": lambda: wrong.invalid,
        "toml": damage.problem_file,
        "netcdf": damage.harm,
    }[kind]()


def example(drawn: Any, number: int) -> Any:
    """The case of this number. Each has a seed of its own: within one seed hypothesis varies a case that it has."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    found: list[Any] = []
    any_pace: Any = list(HealthCheck)

    @seed(number)
    @settings(max_examples=2, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=any_pace)
    @given(drawn)
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found[-1]  # the first is always the simplest


STRUCTURES = 200
"""Enough for every model to stand wherever it can."""


def every_wrong_value() -> Iterator[Any]:
    import wrong

    return wrong.every(example(wrong.right_model(turn), turn) for turn in range(STRUCTURES))


def tried(kind: str, case: Any, folder: Path) -> str:
    """How a case ended; raises where it broke a promise."""
    import damage
    import promises

    if kind == "valid":
        return f"{case.name}: {promises.keeps_its_word(case)}"
    if kind == "invalid":
        return f"{case.made.name}: {promises.refused_by_name(*case)}"
    return damage.reads_or_refuses(case) if kind == "toml" else damage.loads_or_refuses(folder, case)


def serve(connection: Any, folder: Path) -> None:
    """A process that tries what it is sent, and answers (outcome, words, seconds)."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    while True:
        kind, case = connection.recv()
        begin = time.perf_counter()
        try:
            outcome, words = tried(kind, case, folder), ""
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            outcome = "BROKEN: " + ("promise" if type(error).__name__ == "Broken" else type(error).__name__)
            words = f"{' '.join(str(error).split())[:300]} ({where})"
        connection.send((outcome, words, time.perf_counter() - begin))


class Process:
    """One process, replaced when it hangs, dies or has grown large."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.folder), daemon=True)
        self.process.start()
        other.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()

    def ask(self, kind: str, case: Any) -> tuple[str, str, float]:
        """The outcome of a case, within its time."""
        self.count += 1
        if self.count % RESTART == 0:
            self.stop()
            self._start()
        try:
            self.pipe.send((kind, case))
            if self.pipe.poll(LIMIT[kind]):
                return self.pipe.recv()
            answer = ("BROKEN: hung", f"no answer in {LIMIT[kind]:g} s", LIMIT[kind])
        except (EOFError, OSError):
            self.process.join(5)
            answer = ("BROKEN: crashed", f"exit status {self.process.exitcode}", 0.0)
        self.stop()
        self._start()
        return answer


def cases(chosen: argparse.Namespace) -> Iterator[tuple[str, int, int, Any]]:
    """Kind, block, place and case; kinds in turn, block by block."""
    if chosen.every:
        yield from (("invalid", -1, place, case) for place, case in enumerate(every_wrong_value()))
    left = {kind: getattr(chosen, kind) for kind in LIMIT}
    for number in itertools.count(chosen.first):
        if not any(left.values()):
            return
        for kind in LIMIT:
            if left[kind]:
                count = min(BLOCK, left[kind])
                left[kind] -= count
                drawn = strategy(kind, chosen.pool)
                yield from ((kind, number, place, example(drawn, BLOCK * number + place)) for place in range(count))


def main(chosen: argparse.Namespace) -> int:
    import damage

    counts: dict[str, Counter[str]] = {kind: Counter() for kind in LIMIT}
    told: Counter[tuple[str, str]] = Counter()
    slowest: dict[str, float] = dict.fromkeys(LIMIT, 0.0)
    begin, lock = time.perf_counter(), threading.Lock()
    waiting: queue.Queue[Any] = queue.Queue(maxsize=2 * chosen.jobs)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if chosen.netcdf:
            for name, result in damage.results().items():
                result.save(folder / name)

        def work() -> None:
            process = Process(folder)
            while (task := waiting.get()) is not None:
                kind, number, place, case = task
                outcome, words, seconds = process.ask(kind, case)
                with lock:
                    counts[kind][outcome] += 1
                    slowest[kind] = max(slowest[kind], seconds)
                    told[outcome, words[-40:]] += 1
                    if outcome.startswith("BROKEN") and told[outcome, words[-40:]] <= SHOWN:
                        print(f"{kind} {number}/{place} {outcome}: {words}\n    {shown(case)}", flush=True)
                    elif chosen.verbose:
                        print(f"{kind} {number}/{place} {outcome} {seconds:.2f} s", flush=True)
            process.stop()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(chosen.jobs)]
        for thread in threads:
            thread.start()
        last = chosen.first
        for task in cases(chosen):
            last = task[1]
            if not all(thread.is_alive() for thread in threads):
                break
            if time.perf_counter() - begin > chosen.seconds:
                print(f"out of time in block {last}: continue with --first {last}")
                break
            waiting.put(task, timeout=sum(LIMIT.values()))
        for _ in threads:
            waiting.put(None, timeout=sum(LIMIT.values()))
        for thread in threads:
            thread.join()
    broken = 0
    for kind, found in counts.items():
        if found:
            print(f"{kind}: {found.total()} cases, slowest {slowest[kind]:.1f} s")
            for outcome, count in found.most_common():
                print(f"  {count:6d}  {outcome}")
        broken += sum(count for outcome, count in found.items() if outcome.startswith("BROKEN"))
    print(f"{broken} broken promises in {time.perf_counter() - begin:.0f} s, blocks {chosen.first} to {last}")
    return 1 if broken else 0


def shown(case: Any) -> str:
    """A case as code; long runs of one bracket or digit in short."""
    return re.sub(
        r"(.{1,20}?)\1{49,}",
        lambda found: f"{found[1]}…×{len(found[0]) // len(found[1])}…",
        repr(getattr(case, "made", case)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in LIMIT:
        parser.add_argument(f"--{name}", type=int, default=0, help="how many cases")
    parser.add_argument("--every", action="store_true", help="also every wrong value of every argument, some 2200")
    parser.add_argument("--first", type=int, default=0, help="number of the first block")
    parser.add_argument("--pool", type=int, default=40, help="structures of valid calls: each is compiled")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    sys.exit(main(parser.parse_args()))
