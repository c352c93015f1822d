"""An experiment as a TOML file: policies × problems × ε × seeds, all of it checked before anything runs.

`demo.toml`, beside this file, is one; docs/experiments.md says what a file can hold.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import math
import os
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import BaseModel, ConfigDict, Field
from sklearn.gaussian_process.kernels import RBF

from misspec.domains import Box, Finite, Open
from misspec.encoding import kernel_from_table
from misspec.errors import InvalidInput, nearest, number, short, shown, whole
from misspec.experiments import construct
from misspec.files.frames import contents, printable
from misspec.model import Model

FORMAT = 1  # of what a run's settings mean; a new one redoes all runs
# more would not end, or not fit into memory: rounds of a run, runs, candidates, and whatever a problem counts
MOST_ROUNDS, MOST_RUNS, MOST_CANDIDATES, MOST_COUNTED = 10**8, 10**6, 10**6, 10**5
LONGEST = 600  # characters of a complaint
DEEPEST = 30  # levels of tables: kernels can be sums of sums
FEW = 12  # candidates, or rounds, on which to try a problem that takes long

World = tuple[Finite | Open, Model]
# control characters of a name are for no terminal, no picture and no table
Name = Annotated[str, pydantic.AfterValidator(printable)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class DomainSpec(_Part):
    """A grid or a cover of a box, or points."""

    box: list[list[float]] | None = None
    grid: int | list[int] | None = None
    cover: int | None = None
    points: list[list[float]] | None = None

    @pydantic.field_validator("box", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(each, list) and len(each) == 2 for each in value):
            raise ValueError(f"a box is a list of [low, high] pairs, as in [[0, 1]]; got {shown(value)}")
        return value

    @pydantic.model_validator(mode="after")
    def _check(self) -> DomainSpec:
        if (self.points is None) == (self.box is None):
            raise ValueError("give either points = [[…], …] or box = [[low, high], …]")
        if self.box is not None and (self.grid is None) == (self.cover is None):
            raise ValueError("a box needs either grid = (points per dimension) or cover = (points in all)")
        if self.points is not None and (self.grid is not None or self.cover is not None):
            raise ValueError("grid and cover are for a box; leave them out beside points")
        count = self.cover or 1
        if self.grid is not None:
            count = math.prod(self.grid) if isinstance(self.grid, list) else self.grid ** len(self.box or ())
        if count > MOST_CANDIDATES:
            raise ValueError(f"these are more than {MOST_CANDIDATES:,} candidates; take fewer")
        construct.make_domain(self.model_dump())
        return self


class ModelSpec(_Part):
    """The arguments of misspec.Model; the kernel is a table with its name and parameters."""

    kernel: Any
    norm_bound: float
    noise: float
    regularization: float | None = None
    delta: float = 0.1
    offset: float = 0.0
    scale: float = 1.0

    @pydantic.model_validator(mode="after")
    def _check(self) -> ModelSpec:
        construct.make_model(self.model_dump())
        return self


class _Made(BaseModel):
    """Something by the name of what makes it, with arguments."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)
    kind: str
    name: Name = ""

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def _check_names(self, known: set[str]) -> None:
        """ValueError for an argument that is not known."""
        for name in self.settings:
            if name not in known:
                also = nearest(name, {*known, *type(self).model_fields})
                raise ValueError(f"{self.kind} has no argument {name!r}{also}")


class ProblemSpec(_Made):
    """A function of misspec.problems with its arguments; `domain`, `model`, `epsilons` and `minimize` replace the
    file's."""

    kind: str = "misspecified"
    domain: DomainSpec | None = None
    model: ModelSpec | None = None
    epsilons: list[Annotated[float, Field(ge=0)]] | None = None
    actions: Annotated[int, Field(ge=1, le=MOST_COUNTED)] | None = None
    minimize: bool | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> ProblemSpec:
        self._check_names(set(construct.takes(self.kind)) - {"domain", "model", "epsilon"})
        if self.kind == "wrong_kernel" and "kernel" not in self.settings:
            raise ValueError("wrong_kernel needs the truth's kernel, as in kernel = { name = 'Matern', nu = 0.5 }")
        for key, value in self.settings.items():
            if type(value) is int and key != "seed":
                whole(key, abs(value), at_most=MOST_COUNTED)
        if "kernel" in self.settings:
            kernel_from_table(self.settings["kernel"])
        for part in ("domain", "model"):
            if getattr(self, part) is not None and not self.takes(part):
                raise ValueError(f"{self.kind} brings its own {part}; leave it out")
        if self.actions is not None and construct.brings_actions(self.kind) and not self.takes("actions"):
            raise ValueError(f"{self.kind} is contextual already; leave actions out")
        if self.epsilons is not None and not self.takes("epsilon"):
            raise ValueError(f"the ε of {self.kind} is computed; leave epsilons out")
        self.name = self.name or _label(self.kind, self.settings | ({"actions": self.actions} if self.actions else {}))
        return self

    def takes(self, argument: str) -> bool:
        return argument in construct.takes(self.kind)


class PolicySpec(_Made):
    """A policy of misspec with its arguments; seed, and horizon where it has one, are filled in."""

    as_in_paper: bool = False

    @pydantic.model_validator(mode="after")
    def _check(self) -> PolicySpec:
        cls = construct.policy_class(self.kind)
        if self.as_in_paper and not hasattr(cls, "as_in_paper"):
            raise ValueError(f"{self.kind} is not from the paper: leave as_in_paper out")
        parameters = construct.arguments(construct.maker(self.kind, self.as_in_paper))
        takes = set(parameters)
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):  # options of as_in_paper
            takes |= set(construct.arguments(cls))
        # the horizon is the experiment's
        self._check_names(takes - {"domain", "model", "models", "options", "bases", "horizon"})
        told = {name: value for name, value in self.settings.items() if name != "epsilon"}
        self.name = self.name or _label(self.kind, ({"as_in_paper": True} if self.as_in_paper else {}) | told)
        return self


class Experiment(_Part):
    """The content of an experiment file; `runs()` lists its runs."""

    horizon: Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
    seeds: int | list[int] = 5
    epsilons: list[Annotated[float, Field(ge=0)]] = []
    title: Name = ""
    minimize: bool = False
    notes: Name = ""  # how to read the results, for the page and the terminal
    domain: DomainSpec | None = None
    model: ModelSpec | None = None
    problems: Annotated[list[ProblemSpec], Field(min_length=1)]
    policies: Annotated[list[PolicySpec], Field(min_length=1)]

    @pydantic.field_validator("seeds", mode="before")
    @classmethod
    def _some_seeds(cls, value: Any) -> Any:
        several = isinstance(value, list) and value and all(type(each) is int and each >= 0 for each in value)
        if not several and not (type(value) is int and value >= 1):
            raise ValueError(f"give a number from 1 on, or a list of seeds, got {shown(value)}")
        if several and len(set(value)) < len(value):
            raise ValueError("give a number, or a list of different seeds")
        return value

    @pydantic.field_validator("problems", "policies", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise ValueError("write two brackets, as in [[policies]]: there can be several")
        return value

    @pydantic.model_validator(mode="after")
    def _check(self) -> Experiment:
        for what in ("policies", "problems"):
            names = [table.name for table in getattr(self, what)]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what}: two are called {twice[0]!r}; give each a name of its own")
        worlds_of = sum(len(self.epsilons_of(problem)) for problem in self.problems)
        count = len(self.policies) * worlds_of * (self.seeds if isinstance(self.seeds, int) else len(self.seeds))
        if count > MOST_RUNS:
            raise ValueError(f"these are {count:.3g} runs, more than {MOST_RUNS:,}; take fewer seeds, or several files")
        worlds: list[World] = []
        for i, problem in enumerate(self.problems):
            at = f"problems[{i}] ({problem.name})"
            for part in ("domain", "model"):
                there = getattr(problem, part) or getattr(self, part)
                if there is None and construct.needs(problem.kind, part):
                    raise ValueError(f"{at}: {problem.kind} needs a {part}; add a table [{part}] to the file")
            if problem.takes("epsilon") and not self.epsilons_of(problem):
                raise ValueError(f"{at}: {problem.kind} needs epsilons; add epsilons = [0.0, 0.1] to the file")
            try:
                worlds.append(self._try(problem))
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"{at}: {error}") from None
        contextual = [p.name for p in self.problems if p.actions is not None or construct.brings_actions(p.kind)]
        for i, policy in enumerate(self.policies):
            at = f"policies[{i}] ({policy.name})"
            if contextual and not construct.policy_class(policy.kind).abilities.takes_actions:
                raise ValueError(
                    f"{at}: {policy.kind} plays no contextual problem, and {contextual[0]} is one; "
                    "give those a file of their own, without it"
                )
            for problem, world in zip(self.problems, worlds, strict=True):
                try:  # so that its own checks are made now and not in the hundredth run
                    here = self.world() if ":" in policy.kind else world
                    construct.make_policy(policy.model_dump(), *here, 0.1, self.horizon, seed=0)
                except (ValueError, TypeError, ArithmeticError) as error:
                    on = f" (on {problem.name})" if len(self.problems) > 1 and ":" not in policy.kind else ""
                    raise ValueError(f"{at}{on}: {error}") from None
        return self

    def _try(self, problem: ProblemSpec) -> World:
        """Make the problem once, small where that takes long: its own checks are made now.

        Returns a small world to try policies on, with the problem's model where that does not take long.
        """
        settings = next(self._runs(problem)).settings
        if problem.takes("solve"):  # what it brings is known without its truth
            return _small(*construct.make_world(settings))
        if problem.kind == "svm_digits":  # takes seconds, and has nothing to check but a model
            return Box([(0, 1)]).grid(3), Model(RBF(0.5), norm_bound=1.0, noise=0.1)
        rounds, few = problem.settings.get("rounds", FEW), None
        if problem.kind == "fresh_actions" and type(rounds) is int:
            settings["problem"]["rounds"] = min(rounds, FEW)
        if settings["domain"] is not None and problem.kind != "misspecified":
            world: Any = construct.make_world(settings)
            domain, model = world
            model.check(domain)
            if problem.actions is not None and problem.actions > len(domain):
                raise InvalidInput(f"actions must be at most the {len(domain)} candidates, got {problem.actions}")
            some = domain.points[np.unique(np.linspace(0, len(domain) - 1, FEW).astype(int))]
            few = Finite(some, box=domain.box)
            settings["problem"]["actions"] = None
        made = construct.make_problem(settings, few)
        return _small(made.arena, made.model)

    @property
    def all_seeds(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def epsilons_of(self, problem: ProblemSpec) -> list[float | None]:
        """[None] for a problem that computes its own ε."""
        if not problem.takes("epsilon"):
            return [None]
        return list(dict.fromkeys(self.epsilons if problem.epsilons is None else problem.epsilons))

    def world(self) -> World:
        """The domain and the model of the first problem."""
        return construct.make_world(next(self._runs(self.problems[0])).settings)

    def runs(self) -> list[Run]:
        return [run for problem in self.problems for run in self._runs(problem)]

    def _runs(self, problem: ProblemSpec) -> Iterator[Run]:
        """Policies innermost: neighbours share their problem."""
        alike = [(policy, self._settings(policy, problem)) for policy in self.policies]  # whatever ε and the seed
        epsilons, seeds = self.epsilons_of(problem), self.all_seeds
        for epsilon, seed, (policy, settings) in itertools.product(epsilons, seeds, alike):
            own = {"epsilon": epsilon, "seed": seed, "pictured": seed == seeds[0]}
            yield Run(policy.name, problem.name, epsilon, seed, settings | own)

    def _settings(self, policy: PolicySpec, problem: ProblemSpec) -> dict[str, Any]:
        domain = (problem.domain or self.domain) if problem.takes("domain") else None
        model = problem.model or (self.model if construct.needs(problem.kind, "model") else None)
        minimize = self.minimize if problem.minimize is None else problem.minimize
        return {
            "format": FORMAT,
            # the names are for people: changing them changes nothing
            "policy": policy.model_dump(mode="json", exclude={"name"}),
            "problem": problem.model_dump(mode="json", exclude={"name", "domain", "model", "epsilons", "minimize"}),
            "domain": None if domain is None else domain.model_dump(mode="json"),
            "model": None if model is None else model.model_dump(mode="json"),
            "horizon": self.horizon,
            # only where it is so: runs that maximise keep the settings, and the key, that they always had
            **({"minimize": True} if minimize else {}),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One policy in one world. The settings are all that its result depends on; the key is their digest."""

    policy: str
    problem: str
    epsilon: float | None
    seed: int
    settings: dict[str, Any]

    @functools.cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def horizon(self) -> int:
        return int(self.settings["horizon"])

    def __str__(self) -> str:
        at = "" if self.epsilon is None else f", ε = {self.epsilon:g}"
        return f"{self.policy} on {self.problem}{at}, seed {self.seed}"


# -- from a file -------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Experiment:
    """The experiment of a TOML file; InvalidInput names the file, the key and what to do."""
    return parse(content_of(path), str(path))


def content_of(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a TOML file."""
    return contents(path, missing="; `misspec demo` leaves an experiment.toml to start from")


def parse(content: bytes, name: str) -> Experiment:
    """The experiment that TOML text describes; `name` is what errors call it."""
    try:
        table = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not text in UTF-8 ({error}); is it a TOML file?") from None
    except (ValueError, RecursionError) as error:  # TOML's own error, or an integer of thousands of digits
        raise InvalidInput(f"{name} is not valid TOML: {error}; repair that line") from None
    _check_values(table, name, "")
    try:
        return Experiment.model_validate(table)
    except pydantic.ValidationError as error:
        raise InvalidInput(f"{name}: {_first(error, table)}") from None


def with_minimize(content: bytes, name: str) -> bytes:
    """TOML text that says in addition that smaller is better."""
    experiment = parse(content, name)
    if experiment.minimize:
        return content
    if "minimize" in experiment.model_fields_set:
        raise InvalidInput(f"{name} says minimize = false; change that line")
    return b"minimize = true\n" + content


def demo() -> bytes:
    """The TOML of `misspec demo`."""
    return resources.files("misspec.experiments").joinpath("demo.toml").read_bytes()


def _check_values(value: Any, name: str, key: str, depth: int = 0) -> None:
    """InvalidInput for what no key of any table may be; what a problem or a policy is handed is not known here."""
    if isinstance(value, dict | list):
        if depth > DEEPEST:
            raise InvalidInput(f"{name} nests tables too deeply; an experiment needs three levels")
        for each, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _check_values(inner, name, f"{key}[{each}]" if isinstance(each, int) else f"{key}.{each}", depth + 1)
    elif isinstance(value, int | float):
        if not isinstance(value, bool) and (value != math.inf or not key.endswith(".nu")):  # the smoothest of all
            number(f"{name}: {key.lstrip('.')}", value)
    elif not isinstance(value, str):
        raise InvalidInput(f"{name}: {key.lstrip('.')} must be a number, a word, a list or a table, got {value}")


def _first(error: pydantic.ValidationError, table: Any) -> str:
    """The first complaint in one line: key, what was expected, what came."""
    # a key that is not known comes before one that is missing: often it is the same one, misspelt
    first, *others = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    key = _key(first["loc"], table, missing=first["type"] == "missing")
    if first["type"] == "missing":
        says = "is missing; add it"
    elif first["type"] == "extra_forbidden":
        *parents, last = first["loc"]
        kind = DomainSpec if "domain" in parents else ModelSpec if "model" in parents else Experiment
        says = f"is not a key of this table{nearest(str(last), kind.model_fields)}"
    elif first["type"] == "value_error":
        says = short(first["ctx"]["error"], LONGEST)  # a list may be quoted
    else:
        says = f"{first['msg'][0].lower()}{first['msg'][1:]}, got {shown(first['input'])}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{key}: {says}{more}" if key else f"{says}{more}"


def _key(loc: tuple[int | str, ...], table: Any, *, missing: bool) -> str:
    """Position in the file: what pydantic adds (which member of a union it tried) is left out."""
    key = ""
    for i, part in enumerate(loc):
        inside = part in table if isinstance(table, dict) else isinstance(table, list) and isinstance(part, int)
        if inside or (missing and i == len(loc) - 1):
            key += f"[{part}]" if isinstance(part, int) else f".{part}"
            table = table[part] if inside else None
    return key.lstrip(".")


def _small(domain: Finite | Open, model: Model) -> World:
    """A world with a few of the candidates."""
    return (Finite(domain.points[:FEW], box=domain.box) if type(domain) is Finite else domain), model


def _label(kind: str, settings: dict[str, Any]) -> str:
    told = ", ".join(f"{name}={value}" for name, value in settings.items() if not isinstance(value, dict | list))
    return f"{kind}({told})" if told else kind
