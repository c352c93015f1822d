"""Breaks one line of a copy of the source at a time, and says which of these mutants the fast tests do not catch.

    python tools/mutants.py            all of tools/mutants.toml
    python tools/mutants.py REGEX      those whose name or file matches
    python tools/mutants.py --list     their names, files and tests; nothing is run

A mutant has a name, a file below src/misspec, a text in it (old) that occurs exactly once, the text that replaces it
(new), and the tests that should catch it, as arguments of pytest. A text that moved or changed is refused before
anything is run: update it with the source. The tests must pass without a mutant; that is tried once per selection.

Exit code 0 if every mutant is caught, 1 if one survives, 2 if the list or the tests are not right.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
COPIED = ("src", "tests", "pyproject.toml")
FIELDS = {"name", "file", "old", "new", "tests"}
OPTIONS = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
PATIENCE = 10.0  # times what the tests take without a mutant, and 30 s more: a mutant that hangs is caught
LONGEST = 900.0  # seconds for tests without a mutant: longer is a wrong selection


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One entry of the list."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def problem(self) -> str | None:
        """Why it cannot be applied, if it cannot."""
        path = ROOT / "src" / "misspec" / self.file
        if not path.is_file():
            return f"no file {self.file}"
        count = path.read_text().count(self.old)
        if count != 1:
            return f"the old text occurs {count} times in {self.file}, and must occur once"
        missing = [each for each in shlex.split(self.tests) if each.startswith("tests/") and not _exists(each)]
        if missing:
            return f"no test {missing[0]}"
        return "old and new text are equal" if self.old == self.new else None


def _exists(test: str) -> bool:
    return (ROOT / test.partition("::")[0]).exists()


def read() -> list[Mutant]:
    """The whole list; exits where an entry is not right."""
    entries = tomllib.loads(LIST.read_text())["mutant"]
    wrong = [f"{each.get('name')}: needs {', '.join(sorted(FIELDS))}" for each in entries if set(each) != FIELDS]
    mutants = [] if wrong else [Mutant(**each) for each in entries]
    names = [each.name for each in mutants]
    wrong += [
        f"{name}: two mutants have this name" for name in sorted({each for each in names if names.count(each) > 1})
    ]
    wrong += [f"{each.name}: {reason}" for each in mutants if (reason := each.problem()) is not None]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(2)
    return mutants


class Copy:
    """Source and tests in a folder of their own, where mutants are applied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, folder / name)
        self.environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(folder / "src")}
        code = "import misspec; print(misspec.__file__)"
        used = self._run([sys.executable, "-c", code], LONGEST, capture=True)[2].strip()
        if not used.startswith(str(folder)):
            print(f"the tests would not use the copy, but {used}", file=sys.stderr)
            sys.exit(2)

    def path(self, file: str) -> Path:
        return self.folder / "src" / "misspec" / file

    def write(self, file: str, text: str) -> None:
        """Replace a file of the source, and forget what Python compiled of it, which it may take for the new one."""
        path = self.path(file)
        path.write_text(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def passes(self, tests: str, limit: float) -> tuple[bool, float]:
        """Whether the tests pass within so many seconds, and how many they took."""
        command = [sys.executable, "-m", "pytest", *OPTIONS, *shlex.split(tests)]
        code, seconds, _ = self._run(command, limit)
        if code in (4, 5):  # as pytest says: a wrong argument, or no test at all
            print(f"pytest found no tests in {tests!r}", file=sys.stderr)
            sys.exit(2)
        return code == 0, seconds

    def _run(self, command: list[str], limit: float, *, capture: bool = False) -> tuple[int, float, str]:
        start = time.monotonic()
        output = subprocess.PIPE if capture else subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # and what the tests have started
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return -1, time.monotonic() - start, ""
        return process.returncode, time.monotonic() - start, said or ""


def run(mutants: list[Mutant]) -> list[Mutant]:
    """The mutants that survive; prints a line for each."""
    survivors = []
    width = max(len(each.name) for each in mutants)
    usual: dict[str, float] = {}  # seconds that a selection of tests takes without a mutant
    with tempfile.TemporaryDirectory(prefix="misspec-mutants-") as folder:
        copy = Copy(Path(folder))
        for mutant in mutants:
            if mutant.tests not in usual:
                passed, seconds = copy.passes(mutant.tests, LONGEST)
                if not passed:
                    print(f"these tests fail without any mutant: {mutant.tests}", file=sys.stderr)
                    sys.exit(2)
                usual[mutant.tests] = seconds
            text = copy.path(mutant.file).read_text()
            copy.write(mutant.file, text.replace(mutant.old, mutant.new))
            survived, seconds = copy.passes(mutant.tests, PATIENCE * usual[mutant.tests] + 30.0)
            copy.write(mutant.file, text)
            survivors += [mutant] * survived
            print(
                f"{'SURVIVED' if survived else 'caught':8} {seconds:6.1f} s  {mutant.name:{width}}  {mutant.file}",
                flush=True,
            )
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regex", nargs="?", default="", help="which mutants: by name or file; all by default")
    parser.add_argument("--list", action="store_true", help="show them and run nothing")
    arguments = parser.parse_args()
    chosen = [each for each in read() if re.search(arguments.regex, f"{each.name} {each.file}")]
    if not chosen:
        print(f"no mutant matches {arguments.regex!r}", file=sys.stderr)
        return 2
    if arguments.list:
        for each in chosen:
            print(f"{each.name}\n    {each.file}: {each.tests}")
        return 0
    survivors = run(chosen)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
