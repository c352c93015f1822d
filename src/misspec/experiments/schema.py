"""An experiment as a TOML file: policies × problems × ε × seeds, all of it checked before anything runs.

horizon = 2000
seeds = 5                                   # 0 … 4, or a list
epsilons = [0.0, 0.1, 0.2]                  # of every problem that takes one
minimize = false                            # whether smaller is better; a problem can have its own

[domain]
box = [[0, 1]]
grid = 200                                  # or cover = 500, or points = [[0.1], [0.2]] instead of a box

[model]
kernel = { name = "RBF", length_scale = 0.2 }
norm_bound = 2.0
noise = 0.1

[[problems]]
kind = "misspecified"                       # a function of misspec.problems, or module:function
misfit = "ripple"

[[policies]]
kind = "ECGPUCB"                            # a policy of misspec, or module:Class, with its arguments
epsilon = "known"                           # the problem's
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import math
import os
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import BaseModel, ConfigDict, Field

from misspec.domains import Finite, Open
from misspec.encoding import kernel_from_table
from misspec.errors import InvalidInput, nearest, number, shown, whole
from misspec.experiments import construct
from misspec.files.frames import contents, printable
from misspec.model import Model

FORMAT = 1  # of what a run's settings mean; a new one redoes all runs
# more would not end, or not fit into memory: rounds of a run, runs, candidates, and whatever a problem counts
MOST_ROUNDS, MOST_RUNS, MOST_CANDIDATES, MOST_COUNTED = 10**8, 10**6, 10**6, 10**5
LONGEST = 600  # characters of a complaint
DEEPEST = 30  # levels of tables: kernels can be sums of sums
FEW = 12  # candidates, or rounds, on which to try a problem that takes long

# -- parts of a file ---------------------------------------------------------------------------------------------------


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
        if value is None:
            return None
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
        sizes = self.grid if isinstance(self.grid, list) else [self.grid or self.cover or 1]
        sizes = sizes * len(self.box or [[]]) if isinstance(self.grid, int) else sizes
        if math.prod(sizes) > MOST_CANDIDATES:
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


class ProblemSpec(BaseModel):
    """A function of misspec.problems with its arguments; `domain`, `model`, `epsilons` and `minimize` replace the
    file's."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)
    kind: str = "misspecified"
    name: Name = ""
    domain: DomainSpec | None = None
    model: ModelSpec | None = None
    epsilons: list[Annotated[float, Field(ge=0)]] | None = None
    actions: Annotated[int, Field(ge=1, le=MOST_COUNTED)] | None = None
    minimize: bool | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> ProblemSpec:
        takes = set(self._takes()) - {"domain", "model", "epsilon"}
        _check_names(self.kind, self.settings, takes, also=ProblemSpec.model_fields)
        if self.kind == "wrong_kernel" and "kernel" not in self.settings:
            raise ValueError("wrong_kernel needs the truth's kernel, as in kernel = { name = 'Matern', nu = 0.5 }")
        for key, value in self.settings.items():
            if type(value) is int and key != "seed":
                whole(key, abs(value), at_most=MOST_COUNTED)
        if "kernel" in self.settings:
            kernel_from_table(self.settings["kernel"])
        for part in ("domain", "model"):
            if getattr(self, part) is not None and part not in self._takes():
                raise ValueError(f"{self.kind} brings its own {part}; leave it out")
        if self.actions is not None and construct.contextual(self.kind) and "actions" not in self._takes():
            raise ValueError(f"{self.kind} is contextual already; leave actions out")
        if self.epsilons is not None and not self.takes_epsilon:
            raise ValueError(f"the ε of {self.kind} is computed; leave epsilons out")
        self.name = self.name or _label(self.kind, self.settings | ({"actions": self.actions} if self.actions else {}))
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def _takes(self) -> list[str]:
        return construct.takes(self.kind)

    @property
    def takes_epsilon(self) -> bool:
        return "epsilon" in self._takes()

    @property
    def takes_domain(self) -> bool:
        return "domain" in self._takes()

    def needs(self, part: str) -> bool:
        """Whether it cannot do without a domain, or a model, of the file."""
        return construct.needs(self.kind, part)

    @property
    def contextual(self) -> bool:
        return self.actions is not None or construct.contextual(self.kind)


class PolicySpec(BaseModel):
    """A policy of misspec with its arguments; seed, and horizon where it has one, are filled in."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)
    kind: str
    name: Name = ""
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
        takes -= {"domain", "model", "options", "bases", "horizon"}  # the horizon is the experiment's
        _check_names(self.kind, self.settings, takes, also=PolicySpec.model_fields)
        self.name = self.name or _label(
            self.kind, ({"as_in_paper": True} if self.as_in_paper else {}) | self.settings, skip=("epsilon",)
        )
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Experiment(_Part):
    """What a file says; `runs()` lists what is to be done."""

    horizon: Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
    seeds: Annotated[int, Field(ge=1)] | list[Annotated[int, Field(ge=0)]] = 5
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
        return value

    @pydantic.field_validator("problems", "policies", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise ValueError("write two brackets, as in [[policies]]: there can be several")
        return value

    @pydantic.model_validator(mode="after")
    def _check(self) -> Experiment:
        for what, names in (
            ("policies", [p.name for p in self.policies]),
            ("problems", [p.name for p in self.problems]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: two are called {twice[0]!r}; give each a name of its own")
        if isinstance(self.seeds, list) and len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: give a number, or a list of different seeds")
        worlds_of = sum(len(self.epsilons_of(problem)) for problem in self.problems)
        count = len(self.policies) * worlds_of * (self.seeds if isinstance(self.seeds, int) else len(self.seeds))
        if count > MOST_RUNS:
            raise ValueError(f"these are {count:.3g} runs, more than {MOST_RUNS:,}; take fewer seeds, or several files")
        worlds: list[tuple[Finite | Open, Model] | None] = []
        for i, problem in enumerate(self.problems):
            place = f"problems[{i}] ({problem.name})"
            for part in ("domain", "model"):
                if problem.needs(part) and getattr(problem, part) is None and getattr(self, part) is None:
                    raise ValueError(f"{place}: {problem.kind} needs a {part}; add a table [{part}] to the file")
            if problem.takes_epsilon and not self.epsilons_of(problem):
                raise ValueError(f"{place}: {problem.kind} needs epsilons; add epsilons = [0.0, 0.1] to the file")
            try:
                worlds.append(self._try(problem))
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"{place}: {error}") from None
        for i, policy in enumerate(self.policies):
            found = [p.name for p in self.problems if p.contextual]
            if found and not construct.policy_class(policy.kind).abilities.takes_actions:
                raise ValueError(
                    f"policies[{i}] ({policy.name}): {policy.kind} plays no contextual problem, and {found[0]} is one; "
                    "give those a file of their own, without it"
                )
            for problem, world in zip(self.problems, worlds, strict=True):
                try:  # so that its own checks are made now and not in the hundredth run
                    here = self.world() if ":" in policy.kind else world or construct.stand_in()
                    construct.make_policy(policy.model_dump(), *here, 0.1, self.horizon, seed=0)
                except (ValueError, TypeError, ArithmeticError) as error:
                    on = f" (on {problem.name})" if len(self.problems) > 1 and ":" not in policy.kind else ""
                    raise ValueError(f"policies[{i}] ({policy.name}){on}: {error}") from None
        return self

    def _try(self, problem: ProblemSpec) -> tuple[Finite | Open, Model] | None:
        """Make the problem once, small where that takes long: its own checks are made now.

        Returns a small world to try policies on, with the problem's model; None where that would take long.
        """
        settings = self._first(problem).settings
        if "solve" in construct.takes(problem.kind):  # what it brings is known without its truth
            return _small(*construct.make_world(settings))
        if problem.kind == "svm_digits":  # takes seconds, and has nothing to check but a model
            return None
        rounds = problem.settings.get("rounds", FEW)
        if problem.kind == "fresh_actions" and type(rounds) is int:
            settings = settings | {"problem": settings["problem"] | {"rounds": min(rounds, FEW)}}
        few = None
        if settings["domain"] is not None and problem.kind != "misspecified":
            domain, model = construct.make_world(settings)
            assert isinstance(domain, Finite)  # of the file
            model.check(domain)
            if problem.actions is not None and problem.actions > len(domain):
                raise InvalidInput(f"actions must be at most the {len(domain)} candidates, got {problem.actions}")
            some = domain.points[np.unique(np.linspace(0, len(domain) - 1, FEW).astype(int))]
            few = Finite(some, box=domain.box)
        tried = settings | ({"problem": {**settings["problem"], "actions": None}} if few else {})
        made = construct.make_problem(tried, few)
        return _small(made.arena, made.model)

    @property
    def all_seeds(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def first_seed(self) -> int:
        """That of the runs that are pictured."""
        return 0 if isinstance(self.seeds, int) else self.seeds[0]

    def minimizes(self, problem: ProblemSpec) -> bool:
        """Whether smaller is better there."""
        return self.minimize if problem.minimize is None else problem.minimize

    def epsilons_of(self, problem: ProblemSpec) -> list[float | None]:
        """[None] for a problem that computes its own ε."""
        if not problem.takes_epsilon:
            return [None]
        return list(dict.fromkeys(self.epsilons if problem.epsilons is None else problem.epsilons))

    def world(self) -> tuple[Finite | Open, Model]:
        """The domain and the model of the first problem."""
        return construct.make_world(self._first(self.problems[0]).settings)

    def _first(self, problem: ProblemSpec) -> Run:
        policy = self.policies[0]
        return self._run(
            policy, problem, self._settings(policy, problem), self.epsilons_of(problem)[0], self.first_seed
        )

    def runs(self) -> list[Run]:
        """Policies innermost: neighbours share their problem."""
        found = []
        for problem in self.problems:
            alike = [(policy, self._settings(policy, problem)) for policy in self.policies]  # whatever ε and the seed
            found += [
                self._run(policy, problem, settings, epsilon, seed)
                for epsilon in self.epsilons_of(problem)
                for seed in self.all_seeds
                for policy, settings in alike
            ]
        return found

    def _settings(self, policy: PolicySpec, problem: ProblemSpec) -> dict[str, Any]:
        domain, model = problem.domain or self.domain, problem.model or self.model
        # the names are for people: changing them changes nothing
        settings = {
            "format": FORMAT,
            "policy": policy.model_dump(mode="json", exclude={"name"}),
            "problem": problem.model_dump(mode="json", exclude={"name", "domain", "model", "epsilons", "minimize"}),
            "domain": domain.model_dump(mode="json") if domain is not None and problem.takes_domain else None,
            "model": model.model_dump(mode="json")
            if model is not None and (problem.needs("model") or problem.model is not None)
            else None,
            "horizon": self.horizon,
        }
        # said only where it is so: runs that maximise keep the settings, and the key, that they always had
        return settings | {"minimize": True} if self.minimizes(problem) else settings

    def _run(
        self, policy: PolicySpec, problem: ProblemSpec, settings: dict[str, Any], epsilon: float | None, seed: int
    ) -> Run:
        own = {"epsilon": epsilon, "seed": seed, "pictured": seed == self.first_seed}
        return Run(policy.name, problem.name, epsilon, seed, settings | own)


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
    except RecursionError:
        raise InvalidInput(f"{name} nests tables too deeply; an experiment needs three levels") from None


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
    found = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    first = found[0]
    key = _key(first["loc"], table, missing=first["type"] == "missing")
    tables: dict[Any, type[BaseModel]] = {"domain": DomainSpec, "model": ModelSpec}
    parents = [part for part in first["loc"][:-1] if part in tables]
    fields = (tables[parents[-1]] if parents else Experiment).model_fields
    if first["type"] == "missing":
        says = "is missing; add it"
    elif first["type"] == "extra_forbidden":
        says = f"is not a key of this table{nearest(str(first['loc'][-1]), fields)}"
    elif first["type"] == "value_error":
        says = str(first["ctx"]["error"])
        says = says if len(says) <= LONGEST else f"{says[:LONGEST]}…"  # of a list that is quoted
    else:
        says = f"{first['msg'][0].lower()}{first['msg'][1:]}, got {shown(first['input'])}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{key}: {says}{more}" if key else f"{says}{more}"


def _key(loc: tuple[int | str, ...], table: Any, *, missing: bool) -> str:
    """The place in the file: what pydantic adds (which member of a union it tried) is left out."""
    key = ""
    for i, part in enumerate(loc):
        inside = part in table if isinstance(table, dict) else isinstance(table, list) and isinstance(part, int)
        if inside or (missing and i == len(loc) - 1):
            key += f"[{part}]" if isinstance(part, int) else f".{part}"
            table = table[part] if inside else None
    return key.lstrip(".")


def _small(domain: Finite | Open, model: Model) -> tuple[Finite | Open, Model]:
    """A world with a few of the candidates."""
    return (Finite(domain.points[:FEW], box=domain.box) if type(domain) is Finite else domain), model


def _check_names(kind: str, given: dict[str, Any], known: set[str], also: Iterable[str] = ()) -> None:
    """ValueError for an argument that is not known; `also`: keys of the table that are not arguments."""
    for name in given:
        if name not in known:
            raise ValueError(f"{kind} has no argument {name!r}{nearest(name, {*known, *also})}")


def _label(kind: str, settings: dict[str, Any], skip: tuple[str, ...] = ()) -> str:
    shown = ", ".join(f"{k}={v}" for k, v in settings.items() if k not in skip and not isinstance(v, dict | list))
    return f"{kind}({shown})" if shown else kind
