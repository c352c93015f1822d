"""Where actions come from: a finite list of points, a table, a box, a space of named parameters, or rounds.

Users see points in their own units. Kernels see `encode(points)`: a Finite domain's points as given, a Box's points in
the unit cube, and each parameter of a Space in its own code (`parameters.py`). `Box.grid(n)` is a Finite whose points
carry the box's encoding; a table is one with the encoding of the space of its columns.

Box and Space are searched. A search sees points as the kernel does, all of them legal: a cover (`spread`), uniform
points (`uniform`), points nearby (`around`, `neighbours`), and the columns that can be climbed (`free`).
"""

from misspec.domains.base import Domain, a_domain, coordinates, width_of
from misspec.domains.box import Box
from misspec.domains.contexts import Joint, Open
from misspec.domains.finite import Finite
from misspec.domains.mixture import Mixture
from misspec.domains.parameters import Choice, Float, Int
from misspec.domains.space import Space
from misspec.domains.table import Table

__all__ = [
    "Box",
    "Choice",
    "Domain",
    "Finite",
    "Float",
    "Int",
    "Joint",
    "Mixture",
    "Open",
    "Space",
    "Table",
    "a_domain",
    "coordinates",
    "width_of",
]
