"""The typer application, its options, and how errors are shown."""

from __future__ import annotations

import functools
import io
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from typer import Option
from typer.core import TyperArgument, TyperCommand, TyperGroup

import misspec
from misspec.errors import MisspecError, short
from misspec.files.frames import printable


class _Plain:
    """Help without the names of Python's types."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if isinstance(each, TyperArgument):
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # noqa: ARG005
            elif getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class _Command(_Plain, TyperCommand):
    pass


class _Group(_Plain, TyperGroup):
    pass


app = typer.Typer(
    name="misspec",
    help="Gaussian-process bandits that keep working when the model is wrong.",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
EXTRAS = dict.fromkeys(("polars", "pydantic", "matplotlib", "plotly"), "experiments") | {"optuna": "optuna"}
INTERRUPTED = 130
LONGEST = 1500  # characters of an error

Cores = Annotated[int | None, Option(help="Processes to use; all cores by default.", min=1, metavar="N")]
Into = Annotated[
    Path | None, Option(help="Folder for the results; by default FILE-results beside the file.", metavar="FOLDER")
]
Allow = Annotated[
    list[str] | None,
    Option(
        help="A package whose policies and problems (module:Class) the file may import; repeatable.", metavar="NAME"
    ),
]
Aim = Annotated[
    str,
    Option(
        help="Whether the best in the end counts (best) or the result of every evaluation (earn).", metavar="best|earn"
    ),
]
Repeats = Annotated[
    bool, Option("--repeats", help="Count lines that are equal in every cell as repeats, not as copies of one result.")
]
Kernel = Annotated[
    str | None, Option(help="A kernel of scikit-learn, such as Matern or DotProduct; RBF by default.", metavar="NAME")
]
Scale = Annotated[float | None, Option(help="The kernel's length scale, 0.2 by default.", metavar="X")]
Nu = Annotated[float | None, Option(help="The smoothness of a Matern kernel, 2.5 by default.", metavar="X")]
# of files of results that people keep
Target = Annotated[
    str | None,
    Option(help="The column of results; by default the only one that the candidates do not have.", metavar="COLUMN"),
]
Names = Annotated[
    str | None,
    Option(help="The column that names candidates; lines of results can then name theirs.", metavar="COLUMN"),
]
Ignored = Annotated[
    list[str] | None, Option(help="A column that does not describe candidates; repeatable.", metavar="COLUMN")
]
Columns = Annotated[
    list[str] | None,
    Option(
        help="A column that describes candidates; repeatable. By default all do but dates, names and row numbers.",
        metavar="COLUMN",
    ),
]
Where = Annotated[
    list[str] | None,
    Option(help='A rule that candidates keep, as in "temperature + pressure < 200"; repeatable.', metavar="RULE"),
]
Limits = Annotated[
    list[str] | None,
    Option(help='A limit on another column of results, as in "impurity < 2"; repeatable.', metavar="LIMIT"),
]
Noise = Annotated[
    str | None, Option(help="The standard deviation of results, if known, or its column.", metavar="X|COLUMN")
]
Strict = Annotated[bool, Option("--strict", help="Refuse results of experiments that are none of the candidates.")]
Smaller = Annotated[bool, Option("--minimize", help="Smaller results are better.")]
Seed = Annotated[int, Option(help="Seed of random choices.", min=0, metavar="N")]


class Terminal(Console):
    """Prints names as they are, without what would steer the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def note(self, text: str) -> None:
        self.print(Text(text, style="yellow"), soft_wrap=True)


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know all of Unicode
    app(prog_name="misspec")


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Errors are one line and a non-zero exit code; MISSPEC_DEBUG=1 shows where they come from."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except MisspecError as error:
            fail(str(error))
        except ImportError as error:
            extra = EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            fail(f"this command needs {error.name}: pip install 'misspec[{extra}]'")
        except KeyboardInterrupt:
            fail("stopped", INTERRUPTED)
        except MemoryError:
            fail("not enough memory; take a shorter horizon or fewer candidates")
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of the output is gone
            raise typer.Exit(1) from None
        except OSError as error:  # a disk that is full, a name that is too long
            what = "" if error.filename is None else f"{error.filename}: "
            fail(f"{what}{error.strerror or error}")
        except Exception as error:
            kind = type(error).__name__
            fail(f"unexpected {kind}: {error}; this is a defect in misspec; MISSPEC_DEBUG=1 shows where")

    return run


def command(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command to the application. options: as for `Typer.command`."""
    return lambda function: app.command(cls=_Command, **options)(one_line_errors(function))


def fail(message: str, code: int = 1) -> NoReturn:
    if os.environ.get("MISSPEC_DEBUG"):
        traceback.print_exc()
    line = short(" ".join(message.split()), LONGEST)
    Terminal(stderr=True, soft_wrap=True).print(Text.assemble(("misspec: ", "bold red"), line))
    raise typer.Exit(code)


def line_of(command: str, *words: object, **options: Any) -> str:
    """The line that calls a command again; options that are None, False or empty are left out."""
    parts = [command, *words]
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                parts += [f"--{name}", *([] if each is True else [each])]
    return shlex.join(["misspec", *map(str, parts)])


def _version(wanted: bool) -> None:
    if wanted:
        print(f"misspec {misspec.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Gaussian-process bandits that keep working when the model is wrong."""


def number_or_column(given: str | None) -> float | str | None:
    """A number, or the name of a column."""
    try:
        return None if given is None else float(given)
    except ValueError:
        return given
