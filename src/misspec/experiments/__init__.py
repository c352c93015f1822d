"""Experiments: policies × problems × ε × seeds from a TOML file, done on all cores or a cluster, kept as Parquet."""

from misspec.errors import extra

with extra("experiments", "misspec.experiments"):
    from misspec.experiments.compare import compare
    from misspec.experiments.construct import allow
    from misspec.experiments.contest import Contest, contest_in
    from misspec.experiments.runner import Progress, go, results
    from misspec.experiments.schema import Experiment, Run, content_of, demo, parse, read, with_minimize
    from misspec.experiments.store import Finished, Folder, Results, rounds

__all__ = ["Contest", "Experiment", "Finished", "Folder", "Progress", "Results", "Run"]
__all__ += ["allow", "compare", "content_of", "contest_in", "demo", "go", "parse", "read", "results", "rounds"]
__all__ += ["with_minimize"]
