"""The next experiments for someone who runs them by hand: a table of candidates and a CSV file of results in, rows out.

Nothing is kept between calls: the results file is all that is known, and the same files give the same rows. A line of
it is an experiment, known by its name or by its values, whose target is a result, empty while it is being run, or the
word failed (`Auto.drop`).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from misspec.domains import Choice
from misspec.errors import AwaitingResults, FileChanged, HorizonReached, InvalidInput, alike, nearest, shown, whole
from misspec.evaluation.stopping import EVERY, until
from misspec.files import frames
from misspec.integrations.suggest import sheets
from misspec.integrations.suggest.menu import (
    Entry,
    Key,
    Menu,
    OfSpace,
    OfTable,
    copies_of,
    outcome,
    own_noise,
    values_beside,
)
from misspec.integrations.suggest.reasons import Proposal, Reasons
from misspec.limits import names_of_limits, read_limits
from misspec.policies.auto import Auto
from misspec.policies.auto.learnt import best_tried, modelled, settled, spread_of
from misspec.policies.auto.model import FIRST
from misspec.policies.auto.rules import is_quiet
from misspec.policies.core.answers import Query
from misspec.threads import one_thread

TRIES = 20  # queries of one call that may come to what was tried before, once rounded, until points are drawn
RESTARTS = 20  # each means that another process has written: of so many that append at once, the last needs them all


class FileResults:
    """The lines of a file of results, each matched to its experiment.

    read    the file as it was read; None where none was named
    style   how it is written, or will be
    names   its columns, or those that it will have
    """

    def __init__(
        self, read: sheets.File | None, target: str, menu: Menu, noise: str | None = None, *, repeats: bool = False,
        limited: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """noise: the column of the results' own standard deviations; limited: of quantities that limits are on."""
        self.read, self.style, self.limited = read, menu.style, limited
        self.names = [*([] if menu.label is None else [menu.label]), *menu.parameters, target, *limited]
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        if read is None or not read.sheet.header:
            return
        path, sheet = read.path, read.sheet
        self.names = sheet.header
        _check_header(read, target, menu)
        used = [name for name in sheet.header if name in menu.parameters or name == menu.label]
        if noise is not None:
            frames.check_column(noise, sheet.header, path, "--noise")
            if noise in (*used, target):
                said = "is a column of the experiments; --noise takes a number or another column"
                raise InvalidInput(f"{shown(noise)} {said}")
        for name in limited:
            frames.check_column(name, sheet.header, path, "--limit")
            if name in (*used, target, noise):
                raise InvalidInput(f"{shown(name)} has a limit (--limit), and can be no other column")
        columns = {name: sheet.cells(name) for name in [*used, target, *limited, *([] if noise is None else [noise])]}
        numeric = [name for name in columns if not isinstance(menu.parameters.get(name), Choice) and name != menu.label]
        outside: dict[str, list[str]] = {}  # why lines are none of the experiments, and which
        again, self.notes = copies_of(read, target, repeats=repeats)
        commas = False
        for row in range(len(sheet.rows)):
            line, cells = read.line(row), {name: columns[name][row] for name in columns}
            if not any(cells.values()):
                continue  # a remark
            sheet.check(row, line)
            key = menu.find(cells, line)
            if row in again:
                menu.asked.add(key)
                continue
            own = math.nan if noise is None else own_noise(cells[noise], line, noise)
            beside = values_beside(read, row, limited)
            self.entries.append(Entry(key, str(line), *outcome(cells[target], line, target), own, beside))
            for why, name in menu.outside(key):
                outside.setdefault(why, []).append(f"{name} in line {line.number}" if name else f"line {line.number}")
            commas |= any(line.pointed(cells[name]) != cells[name] for name in numeric)
        left = [name for name in sheet.header if name and name not in columns]
        if left:
            self.notes.append(f"Columns of {path} that are left alone: {', '.join(left)}.")
        for why, which in outside.items():
            if menu.strict:
                raise InvalidInput(f"{path}: {which[0]} {why}; correct it, or leave --strict out")
            some = ", ".join(which[:3]) + (f" and {len(which) - 3} more" if len(which) > 3 else "")
            self.notes.append(f"Learnt from, though it {why}: {some}.")
        commas = commas or (sheet.style.separator != "," and not self.entries and menu.style.decimal == ",")
        self.style = sheet.style._replace(decimal="," if commas else ".")


@dataclasses.dataclass(frozen=True, eq=False)
class Suggestion:
    """The next experiments, and the data that they rest on.

    rows       to try, the first one first; fewer than asked for where no more are worth it, as `notes` say
    target     the column of results
    told, running, failed   lines with a result, lines without one, and those that failed
    best       what is expected of the best experiment so far, by its mean; None before there is one
    notes      what was taken from the files and what was left out, one sentence each
    summary    what was learnt, as in `Auto.summary()`, one sentence each
    stop       whether `ms.until()` would stop, and why, in a sentence; "" where that is not known
    limited    columns of quantities that limits are on
    policy     the `Auto` that knows all this, for `ms.reports.of_policy(found.policy, "folder", target=found.target)`;
               what is being run is pending there, and the rows are not asked yet
    """

    rows: list[Proposal]
    target: str
    told: int
    running: int
    failed: int
    best: float | None
    notes: list[str]
    summary: list[str]
    stop: str
    menu: Menu = dataclasses.field(repr=False)
    file: FileResults = dataclasses.field(repr=False)
    policy: Auto = dataclasses.field(repr=False)
    limited: tuple[str, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """A CSV file of its own with the columns of the results and the rows to try, their target empty. A file that
        holds results which the results file does not is not overwritten."""
        into = Path(path)
        for other in (self.menu.path, *([] if self.file.read is None else [self.file.read.path])):
            if sheets.same(into, other):
                raise InvalidInput(f"{path} is what the suggestions rest on; write them to another file")
        sheets.write(self._spared(into), [self.file.names, *self._lines()], self.file.style)

    def append(self) -> None:
        """Add the rows to try, their target empty, to the results file, whose bytes stay as they are; it is made where
        there is none. Whole or not at all; FileChanged if the file is not what the rows rest on any more."""
        if self.file.read is None:
            raise InvalidInput("there is no file of results to append to; name one: --results results.csv")
        if not self.rows:
            return
        if self.file.read.sheet.header:
            sheets.append_rows(self.file.read, self._lines())
        else:
            sheets.write(self.file.read, [self.file.names, *self._lines()], self.file.style)

    def _lines(self) -> list[list[str]]:
        cells = [{**row.values, **dict.fromkeys([self.target, *self.limited])} for row in self.rows]
        return [[sheets.cell_of(row.get(name), self.file.style.decimal) for name in self.file.names] for row in cells]

    def _spared(self, path: Path) -> sheets.File:
        """A file to be overwritten; InvalidInput if it holds what is known nowhere else."""
        try:
            file = sheets.File(path)
            held = (
                [] if file.content is None else FileResults(file, self.target, self.menu, limited=self.limited).entries
            )
        except InvalidInput as error:
            raise InvalidInput(f"{path} exists, and holds no rows to try ({error}); choose another name") from None
        known = [*self.menu.entries, *self.file.entries]
        given, told = (Counter((each.key, each.y) for each in some if each.y is not None) for some in (held, known))
        if given - told:
            raise InvalidInput(
                f"{path} holds {(given - told).total()} result(s) that are not among the results yet; copy these lines "
                "there and run the same command again, or choose another name"
            )
        return file


def suggest(
    source: str | os.PathLike[str],
    results: str | os.PathLike[str] | None = None,
    target: str | None = None,
    *,
    batch: int = 5,
    names: str | None = None,
    ignore: Sequence[str] = (),
    columns: Sequence[str] = (),
    where: Sequence[str] = (),
    minimize: bool = False,
    noise: float | str | None = None,
    strict: bool = False,
    repeats: bool = False,
    aim: str = "best",
    limits: str | Sequence[str] | None = None,
    seed: int = 0,
) -> Suggestion:
    """The next experiments.

    source    a CSV file of candidates, which may hold results itself; or a TOML file with a space (`space_file.py`)
    results   a CSV file; one that does not exist, or holds only the names of columns, has no results yet
    target    the column of results; without, the only column of the results file that the source does not have
    batch     how many rows; 0 for what is known alone
    names     the column of candidates that names them
    ignore    columns of candidates that say nothing about them
    columns   those that describe them; by default all but dates, texts that differ from row to row, numbers of rows
    where     rules that candidates keep, as in ["temperature + pressure < 200"]; the others' results count all the same
    noise     by how much results vary, if that is known; or the column of the results that has a standard deviation for
              each of them, beside what is learnt; empty where there is none
    strict    refuse results of experiments that are not among the candidates, or not in the space, instead of
              learning from them
    limits    such as "impurity < 2", one or several: the column of that name holds what was measured, and may be empty
    repeats   lines that are equal in every cell are repeats with equal results, not one line twice

    InvalidInput names line and column of a cell that is wrong.
    """
    whole("batch", batch)
    limited = names_of_limits(read_limits(limits))
    path = Path(source)
    read = None if results is None else sheets.File(Path(results))
    if read is not None and sheets.same(path, read.path):
        raise InvalidInput(
            f"{path} cannot be the file of results too: a line without a result is a candidate in one, and an "
            "experiment that is being run in the other; leave --results out, or name another file"
        )
    notes: list[str] = []
    if path.suffix.lower() == ".toml":
        if names is not None or ignore or columns:
            raise InvalidInput(f"{path} is a space and has no columns; leave --names, --ignore and --columns out")
        if where:
            raise InvalidInput(f"{path} has its rules in it: write where = {shown(list(where))} above the rest")
        menu: Menu = OfSpace(path, strict=strict)
        goal = _target(target, read, [*menu.known, *limited], path, notes)
        for name, option in ((goal, "target"), *((each, "limit") for each in limited)):
            if name in menu.known:
                raise InvalidInput(
                    f"{shown(name)} is a parameter of {path}; the {option} must be another column (--{option})"
                )
    else:
        table = sheets.File(path)
        if table.content is None:
            raise InvalidInput(f"{path} does not exist")
        goal = _target(target, read, [*table.sheet.header, *limited], path, notes)
        menu = OfTable(
            table, goal, names, ignore, columns, where=where, strict=strict, repeats=repeats, limited=limited
        )
        for name in (name for name in limited if name in table.sheet.header):
            done = table.sheet.cells(goal) if goal in table.sheet.header else [""] * len(table.sheet.rows)
            if any(cell and not y for cell, y in zip(table.sheet.cells(name), done, strict=True)):
                raise InvalidInput(f"{shown(name)} is known of candidates that have no result: bound it by --where")
        notes += table.notes
    if read is None and goal not in menu.known:
        raise InvalidInput(
            f"{path} has no column {shown(goal)}{nearest(goal, menu.known)}; name the file of results, even if it does "
            "not exist yet: --results results.csv"
        )
    if read is not None and read.content is None:
        beside = [each.name for each in read.path.absolute().parent.glob("*") if each.name != path.name]
        hint = alike(read.path.name, beside).replace("; did", " Did")
        notes.append(f"{read.path} does not exist: starting from {'nothing' if not menu.entries else path}.{hint}")
    own = noise if isinstance(noise, str) else None
    if own is not None and read is None:
        raise InvalidInput(f"noise {shown(own)} names a column of the results; name their file: --results results.csv")
    if goal in limited:
        raise InvalidInput(f"{shown(goal)} holds the results (--target), and can have no limit")
    told = FileResults(read, goal, menu, own, repeats=repeats, limited=limited)
    notes += [*([] if read is None else read.notes), *menu.notes, *told.notes]
    with one_thread():
        known = None if isinstance(noise, str) else noise
        policy = Auto(menu.domain, aim=aim, noise=known, minimize=minimize, limits=limits, seed=seed)
        return _suggested(policy, menu, goal, told, notes, batch)


def append(*files: Any, **options: Any) -> Suggestion:
    """`suggest`, and append the rows to the results file: again from the beginning if that has changed meanwhile."""
    for left in reversed(range(RESTARTS)):
        found = suggest(*files, **options)
        try:
            found.append()
        except FileChanged:
            if not left:
                raise
        else:
            return found
    raise AssertionError


def _suggested(policy: Auto, menu: Menu, target: str, file: FileResults, notes: list[str], batch: int) -> Suggestion:
    # those of the list first: the others are points
    entries = sorted([*menu.entries, *file.entries], key=lambda each: isinstance(each.key, tuple))
    failed = [each.key for each in entries if each.failed]
    running = [each.key for each in entries if each.y is None and not each.failed]
    told = [each for each in entries if each.y is not None]
    seen: dict[Key, list[float]] = {}
    for each in told:
        seen.setdefault(each.key, []).append(float(each.y or 0.0))
    for kind in (int, tuple):
        some = [each for each in told if isinstance(each.key, kind)]
        if some:
            keys, y, own = zip(*((each.key, each.y, each.noise) for each in some), strict=True)
            limits = {name: [each.limits.get(name) for each in some] for name in file.limited}
            policy._learn_from(np.array(keys), y, None, own, limits)  # which says nothing of points outside: notes do
    for key in failed:  # after all results: what failed is judged by what lies nearest to it
        policy.drop(policy.mark_pending(np.array([key])))
    for kind in (int, tuple):
        begun = [key for key in running if isinstance(key, kind)]
        if begun:
            policy.mark_pending(np.array(begun))
    policy.refresh()
    known = copy.deepcopy(policy)  # what is asked changes nothing in what is said
    queries, why = _asked(policy, menu, batch, set(seen), running, Counter(failed))
    doubted = [each.row for each in known.suspicious() if each.factor == 1.0]  # as the summary has it
    best = best_tried(known, doubted).mean if told else None
    reasons = Reasons(known, menu, seen, running, best, settled(known).noise_level if known.t >= FIRST else 1.0)
    rows = [reasons.of(query, key, bool(running) or i > 0) for i, (query, key) in enumerate(queries)]
    summary = known.summary(called=[each.line for each in told]).splitlines()
    counts = (len(told), len(running), len(failed))
    stop = "Stop? Yes: nothing is left to try." if why and not rows and not running else _stop(known)
    return Suggestion(
        rows, target, *counts, best, [*notes, *why], summary, stop, menu, file, known, tuple(file.limited)
    )


def _stop(policy: Auto) -> str:
    """Whether `ms.until()` would stop; "" where nothing is known."""
    rule = until()
    if not modelled(policy) or not spread_of(policy.observations.y):
        return ""
    if why := rule.why(policy):
        return f"Stop? Yes: {why}."
    return f"Stop? Not yet: that takes a chance of at most {100 * rule.chance:g} % twice, {EVERY} results apart."


def _asked(
    policy: Auto, menu: Menu, batch: int, seen: set[Key], running: Sequence[Key], failures: Counter[Key]
) -> tuple[list[tuple[Query, Key]], list[str]]:
    """At most `batch` queries and the experiments that they come to, no two the same, and why there are not more.

    Numbers that vary by degrees are rounded, so that a query can come to an experiment that was tried or is being run.
    Such a query is left pending, and others are chosen around it: in such a space there is always something left.
    """
    asked: list[tuple[Query, Key]] = []
    taken = {*running, *menu.asked}
    spare = TRIES
    rng = np.random.default_rng([policy.seed, policy.t, policy.asked])

    def free(key: Key, rule: str = "") -> bool:
        """Test whether an experiment is worth doing."""
        if key in seen:
            return key not in taken and policy.t >= FIRST and (rule == "confirm" or not is_quiet(policy.posterior))
        return key not in taken and failures[key] <= (policy.t >= FIRST)

    while len(asked) < batch:
        new = None
        if policy.t < FIRST:
            # before there is a model points are drawn: from what is new, else from what failed once
            new = menu.others({*taken, *seen, *failures})
            if new == []:
                new = [key for key in failures if failures[key] == 1 and key not in seen | taken]
            if new == []:
                return asked, [_nothing_left(menu, taken | seen, running, failures, len(asked), batch)]
        try:
            query = policy.ask() if new is None else policy.ask(actions=np.array(new))
        except (AwaitingResults, HorizonReached):  # every candidate was tried, and a repeat would teach nothing
            if policy.limits and menu.others(taken | seen):
                return asked, ["Nothing is left to try that is likely to keep the limits."]
            return asked, [_nothing_left(menu, taken | seen, running, failures, len(asked), batch)]
        key = menu.key(query)
        repeat = key in menu.asked or (not failures and not free(key, str(query.details["rule"])))
        if new is None and repeat and (others := [each for each in menu.every or () if free(each)]):
            # whether it was repeated is for people to say, or would teach nothing: then the best of the others
            query = policy.ask(actions=np.array(others))
            key = menu.key(query)
        if new is None and not free(key, str(query.details["rule"])):
            if not isinstance(menu, OfSpace) or menu.every is not None:  # all were compared, and none is better
                return asked, [_nothing_left(menu, taken | seen, running, failures, len(asked), batch)]
            spare -= 1
            if spare >= 0:
                continue
            drawn = menu.drawn(free, rng)
            if not drawn:
                return asked, ["Nothing else was found to try."]
            query = policy.ask(actions=np.array(drawn))
            assert query.position is not None  # as always where actions are handed in
            key = drawn[query.position]
        taken.add(key)
        asked.append((query, key))
    return asked, []


def _nothing_left(
    menu: Menu, done: set[Key], running: Sequence[Key], failures: Counter[Key], some: int, batch: int
) -> str:
    """Say why no experiment is suggested, or no more than some, where all can be listed."""
    if left := menu.others(done):
        times = [failures[key] for key in left if failures[key]]
        what = "what failed" + " twice" * (min(times, default=0) > 1)
        what = what if len(times) == len(left) else f"{what}, or is like it" if times else "what is like what failed"
        return f"{f'{some} of the {batch} asked for: n' if some else 'N'}othing is left to try but {what}."
    what = "point of the space" if menu.size is None else "candidate"
    ways = ["has a result", *(["is being run"] if running else []), *(["is suggested here"] if some else [])]
    shown = " or ".join([", ".join(ways[:-1]), ways[-1]] if len(ways) > 1 else ways)
    return f"Every {what} {shown}: nothing{' else' if some else ''} is left to try."


def _target(target: str | None, read: sheets.File | None, known: Sequence[str], path: Path, notes: list[str]) -> str:
    header = [] if read is None else read.sheet.header
    where = "the file of results" if read is None else str(read.path)
    if target is not None:
        if header:
            frames.check_column(target, header, where, "--target")
        return target
    new = [name for name in header if name and name not in known]
    if len(new) == 1:
        notes.append(
            f"{shown(new[0])} is taken for the results, the only column that {path} does not have (see --target)."
        )
        return new[0]
    if not header:
        raise InvalidInput("say which column holds the results, or will hold them, as in --target yield")
    among = new or header
    hint = f"as in --target {among[-1]} ({', '.join(among)})"
    raise InvalidInput(f"say which column of {where} holds the results, {hint}")


def _check_header(read: sheets.File, target: str, menu: Menu) -> None:
    """InvalidInput if the columns cannot tell which experiment a line is about."""
    path, header = read.path, read.sheet.header
    frames.check_column(target, header, path, "--target")
    missing = [name for name, p in menu.parameters.items() if name not in header and p.count != 1]
    if not missing or (menu.label is not None and menu.label in header):
        return
    which = f" (--names says which column of {menu.path} it is)" if menu.label is None else f", {shown(menu.label)}"
    how = "" if menu.size is None else f", or one of names{which}"
    hint = nearest(missing[0], [name for name in header if name != target])
    raise InvalidInput(f"{path} has no column {shown(missing[0])} of {menu.path}{hint}; add it{how}")
