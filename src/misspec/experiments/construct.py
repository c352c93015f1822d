"""Domain, model, problem and policy of a run, made from its settings.

A kind is one of misspec's names, or `module:name` for your own policy or problem. Modules are imported only where
that was allowed by the person who runs the file (`--allow my_package`), never because a file says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

from misspec import comparators, policies, problems
from misspec.domains import Box, Finite, Open
from misspec.encoding import kernel_from_table
from misspec.errors import InvalidInput, nearest
from misspec.model import Model
from misspec.policies import Policy
from misspec.policies.core.registry import signature_of
from misspec.problems import Problem

KNOWN = "known"  # an ε, or the corruption εT, that the policy is told
_ALLOWED: ContextVar[frozenset[str]] = ContextVar("packages that files may name", default=frozenset())

POLICIES = {
    name: cast("type[Policy]", getattr(module, name))
    for module, names in ((policies, ("Auto", *policies.PLAYABLE)), (comparators, comparators.__all__))
    for name in names
}
PROBLEMS: dict[str, Callable[..., Problem]] = {name: getattr(problems, name) for name in problems.PLAYABLE}


@contextlib.contextmanager
def allow(packages: str | Iterable[str]) -> Iterator[None]:
    """Inside such a block files may name what these packages hold; the current folder is searched for them too."""
    chosen = {packages} if isinstance(packages, str) else set(packages)
    token = _ALLOWED.set(_ALLOWED.get() | chosen)
    if chosen:
        sys.path.append("")
    try:
        yield
    finally:
        _ALLOWED.reset(token)
        if chosen and "" in sys.path:  # the last one: Python may have put another to the front
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index("")]


def allowed() -> frozenset[str]:
    """Packages that files may name here."""
    return _ALLOWED.get()


def policy_class(kind: str) -> type[Policy]:
    found: Any = _named(kind, POLICIES, "policy", "Class")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InvalidInput(f"{kind} must be a class derived from misspec.Policy, got {found!r}")
    return found


def problem_maker(kind: str) -> Callable[..., Problem]:
    found = _named(kind, PROBLEMS, "problem", "function")
    if not inspect.isfunction(found) and not isinstance(found, type):
        raise InvalidInput(f"{kind} must be a function that returns a misspec.Problem, got {found!r}")
    return cast("Callable[..., Problem]", found)


def _named(kind: str, known: Mapping[str, Any], what: str, own: str) -> Any:
    """What has this name among misspec's own, or in a module that files may import."""
    if ":" not in kind:
        if kind not in known:
            raise InvalidInput(f"unknown {what} {kind!r}{nearest(kind, known)}; or module:{own} of your own")
        return known[kind]
    module, _, name = kind.partition(":")
    package = module.partition(".")[0]
    if not _inside(module):
        raise InvalidInput(
            f"{kind} is code of yours: say that this file may import it with --allow {package}, in Python "
            f'allow=["{package}"]'
        )
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InvalidInput(f"cannot import {module} ({error}); install it, or run in its folder") from None
    except AttributeError:
        raise InvalidInput(f"{module} has no {name!r}; is it spelt right?") from None
    home = str(getattr(found, "__module__", "another"))
    if not _inside(home):  # what a module merely imports is not what was allowed
        raise InvalidInput(f"{kind} is not defined in a package that --allow names, but in {home}")
    return found


def _inside(module: str) -> bool:
    """Test whether a module belongs to a package that is allowed."""
    return any(module == package or module.startswith(f"{package}.") for package in allowed())


def make_domain(table: Mapping[str, Any]) -> Finite:
    """From a box with a grid or cover, or from points."""
    if table["points"] is not None:
        return Finite(table["points"])
    box = Box(table["box"])
    return box.grid(table["grid"]) if table["grid"] is not None else box.cover(table["cover"])


def make_model(table: Mapping[str, Any]) -> Model:
    """From the arguments of Model; the kernel is a table with its name and parameters."""
    return Model(**{**table, "kernel": kernel_from_table(table["kernel"])})


def takes(kind: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a problem."""
    return inspect.signature(problem_maker(kind)).parameters


def needs(kind: str, argument: str) -> bool:
    """Test whether a problem cannot be made without this argument."""
    return argument in takes(kind) and takes(kind)[argument].default is inspect.Parameter.empty


def brings_actions(kind: str) -> bool:
    """Test whether problems of this kind bring their own action sets."""
    return kind in problems.CONTEXTUAL or bool(getattr(problem_maker(kind), "contextual", False))


def make_problem(settings: dict[str, Any], domain: Finite | None = None) -> Problem:
    """The problem that a run's settings describe; on another domain, for a trial.

    Where smaller is better, misspec's own problems, which are made to be maximised, are turned upside down.
    """
    table = dict(settings["problem"])
    kind, actions = table.pop("kind"), table.pop("actions", None)
    minimize = settings.get("minimize", False)
    upside_down = minimize and ":" not in kind
    if "kernel" in table:
        table["kernel"] = kernel_from_table(table["kernel"])
    if settings["model"] is not None:
        model = make_model(settings["model"])
        table["model"] = model.turned() if upside_down else model
    if settings["domain"] is not None:
        table["domain"] = make_domain(settings["domain"]) if domain is None else domain
    if settings["epsilon"] is not None:
        table["epsilon"] = settings["epsilon"]
    if "seed" in takes(kind):
        table.setdefault("seed", settings["seed"])
    if "actions" in takes(kind):
        table |= {} if actions is None else {"actions": actions}
        actions = None
    problem = problem_maker(kind)(**table)
    if not isinstance(problem, Problem):
        raise InvalidInput(f"{kind} must return a misspec.Problem, got {type(problem).__name__}")
    if upside_down:
        problem = problems.negated(problem)
    elif minimize:
        problem = dataclasses.replace(problem, minimize=True)
    elif problem.minimize:
        raise InvalidInput(f"smaller values of {kind} are better: say minimize = true in the file")
    return problem if actions is None else problems.contextual(problem, actions)


def make_world(settings: dict[str, Any]) -> tuple[Finite | Open, Model]:
    """The domain and the model of a run."""
    if settings["domain"] is not None and settings["model"] is not None:
        return make_domain(settings["domain"]), make_model(settings["model"])
    problem = problem_of(settings, solve=False)
    return problem.arena, problem.model


def problem_of(settings: dict[str, Any], *, solve: bool = True) -> Problem:
    """The problem of a run. solve=False: a truth that has to be solved for, which takes long, is left unsolved."""
    wanted = ("problem", "model", "domain", "epsilon", "seed", "minimize")
    own = {name: settings[name] for name in wanted if name in settings}
    arguments = takes(own["problem"]["kind"])
    if "seed" not in arguments:
        own["seed"] = 0  # it makes no difference
    if not solve and "solve" in arguments:
        own["problem"] = own["problem"] | {"solve": False}
    return _shared(json.dumps(own))


@functools.lru_cache(maxsize=8)  # neighbouring runs share their problem
def _shared(settings: str) -> Problem:
    return make_problem(json.loads(settings))


def maker(kind: str, as_in_paper: bool) -> Callable[..., Policy]:
    """The function that makes a policy of this kind: its class, or `as_in_paper` of it."""
    cls: Any = policy_class(kind)
    return cast("Callable[..., Policy]", cls.as_in_paper if as_in_paper else cls)


def make_policy(
    table: dict[str, Any],
    domain: Finite | Open,
    model: Model,
    epsilon: float,
    horizon: int,
    seed: int,
    *,
    minimize: bool = False,
) -> Policy:
    """A fresh policy; what it is told of ε and the horizon is filled in."""
    make = maker(table["kind"], table["as_in_paper"])
    wanted = arguments(make)
    given: dict[str, Any] = {name: value for name, value in (("seed", seed), ("horizon", horizon)) if name in wanted}
    given |= {"minimize": True} if minimize else {}
    given |= {key: value for key, value in table.items() if key not in ("kind", "name", "as_in_paper")}
    # what a policy of your own merely passes on (**settings) it is told only where the file says so
    own: Any = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]  # its own, not the settings
    names = inspect.signature(own).parameters if ":" in table["kind"] else wanted
    for name, value in (("epsilon", epsilon), ("corruption", epsilon * horizon)):
        if name in wanted and given.get(name, KNOWN if name in names else None) == KNOWN:
            given[name] = value
    return make(*((domain, model) if {"model", "models"} & set(wanted) else (domain,)), **given)


def arguments(make: Callable[..., Policy]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a class of policies, or of its `as_in_paper`."""
    return signature_of(make).parameters
