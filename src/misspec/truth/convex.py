"""The convex programs behind `best_in_class` and the certificates.

    x_1 … x_N   the points; K their Gram matrix, K_W that of the working set W
    f           values (f* or averages ȳ) minus the offset
    r_j         radii: 0 for a known truth, the averages' confidence radii for data
    g           a member of the class, ‖g‖ ≤ B

    best in class, certificate     minimise s      with  |g(x_j) − f_j| ≤ s + r_j,  ‖g‖ ≤ B
    least norm                     minimise ‖g‖    with  |g(x_j) − f_j| ≤ r_j

Few of the constraints bind at the optimum, so they are exchanged: solve on a working set with Clarabel, add the worst
violations over the whole domain, drop slack constraints, repeat. A member that is optimal for a working set is a
combination of the kernel at its points (the representer theorem), so a problem is as large as its working set, whatever
N and the kernel's rank. On 5,000 candidates that takes one to three seconds for smooth misfits and six to ten for
random signs under an RBF; random signs under a Matérn kernel bind nearly everywhere and can take minutes.

Every number is checked independently of the solver: the distance of the member is computed on all points, and the
multipliers α ≥ 0, Σα = 1, with signs v_j = ±α_j, prove s ≥ −B√(vᵀKv) − Σ(v_jf_j + α_jr_j) by duality.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from misspec import kernels
from misspec.errors import SMALLEST, Array, NumericalError

GAP = 1e-8  # the exchange ends when solution and proof are this near, in units of the largest value
ROUNDS = 60  # most rounds of exchange
BLOCKS = 80  # the domain is divided into this many parts, and each adds its worst violation
INDEPENDENT = 1e-14  # a point of the working set adds a feature if its residual exceeds this


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """A member g: values, norm, distance max(|g − f| − r), a proved lower bound on all distances, and working set."""

    values: Array
    norm: float
    distance: float
    proved: float
    rows: NDArray[np.intp]


class Program:
    """Constraints |g(x_j) − f_j| ≤ s + r_j. Row 2j is the upper one, g − f ≤ s + r, row 2j + 1 the lower one."""

    def __init__(self, kernel: Any, X: Array, target: Array, radii: Array) -> None:
        self.kernel, self.X, self.target, self.radii = kernel, X, target, radii
        largest = float(np.abs(target).max())
        self.scale = largest if largest >= SMALLEST else 1.0
        self.size = float(kernels.diagonal(kernel, X).max()) or 1.0  # largest k(x,x), to which tolerances are relative
        centres = np.unique(np.linspace(0, len(X) - 1, min(len(X), BLOCKS)).astype(np.intp))
        block = kernels.cross(kernel, X, X[centres]).argmax(axis=1)
        order = np.argsort(block, kind="stable")
        self._blocks = np.split(order, np.flatnonzero(np.diff(block[order])) + 1)
        self._start = np.unique(self._worst(np.concatenate([-target, target]) - np.tile(radii, 2)))

    def interpolant(self, norm_bound: float) -> Member | None:
        """f itself if it is a member, so that nothing has to be solved; else None."""
        Phi, _ = kernels.pivoted(self.kernel, self.X, INDEPENDENT * self.size, most=1000)
        w = np.linalg.lstsq(Phi, self.target, rcond=None)[0]
        norm = float(np.linalg.norm(w))
        values = Phi @ (w * min(1.0, norm_bound / max(norm, 1e-300)))
        distance = float(np.abs(values - self.target).max())
        none = np.empty(0, dtype=np.intp)
        return Member(values, min(norm, norm_bound), distance, 0.0, none) if distance <= GAP * self.scale else None

    def explained(self, norm_bound: float, slack: float) -> bool:
        """Whether some ridge regression is a member within r + slack of all values: then nothing has to be solved."""
        K = kernels.cross(self.kernel, self.X, self.X)
        for factor in (1.0, 0.1, 10.0, 0.01):
            ridge = factor * (self.radii / norm_bound) ** 2 + 1e-9 * self.size
            try:
                alpha = linalg.solve(K + np.diag(ridge), self.target, assume_a="pos", check_finite=False)
            except linalg.LinAlgError:
                continue
            values = K @ alpha
            fits = bool((np.abs(values - self.target) <= self.radii + slack).all())
            if fits and float(alpha @ values) <= norm_bound**2:
                return True
        return False

    def nearest(self, norm_bound: float) -> Member:
        """The member of norm at most B whose largest excess over the radii is smallest."""
        best: Member | None = None
        rows, proved = self._start, -math.inf
        for _ in range(ROUNDS):
            i, side = self._read(rows)
            try:
                values, norm, multipliers = self._solve(rows, self.radii[i], norm_bound)
            except NumericalError:
                if best is None:
                    raise
                break  # the bound proved so far is valid
            factor = min(1.0, norm_bound / max(norm, 1e-300))  # the solver may exceed the bound by a rounding error
            excess = self._excess(values * factor)
            alpha = np.maximum(multipliers, 0.0)
            alpha = alpha / alpha.sum()
            v = alpha * side
            bound = self._proved(i, v, norm_bound)
            if best is None or excess.max() < best.distance:
                best = Member(values * factor, norm * factor, float(excess.max()), bound, rows)
            rising, proved = bound > proved + GAP * self.scale, max(proved, bound)
            new = self._violated(excess, proved + GAP * self.scale, rows)
            if best.distance <= proved + GAP * self.scale or not len(new):
                break
            if rising:  # dropping is safe while the bound rises: no working set comes back
                slack = float(excess[self._flat(rows)].max()) - excess[self._flat(rows)]
                rows = rows[(multipliers > 1e-9) | (slack < 0.1 * self.scale)]
            rows = np.union1d(rows, new)
        assert best is not None
        return dataclasses.replace(best, proved=proved)

    def _proved(self, i: NDArray[np.intp], v: Array, norm_bound: float) -> float:
        """−B√(vᵀKv) − Σ(v_jf_j + |v_j|r_j) minus rounding errors: a lower bound on every distance."""
        rounding = (8.0 + math.sqrt(len(i))) * np.finfo(float).eps
        square = max(0.0, float(v @ kernels.cross(self.kernel, self.X[i], self.X[i]) @ v)) + rounding * self.size
        linear = float(v @ self.target[i] + np.abs(v) @ self.radii[i])
        return -norm_bound * math.sqrt(square) - linear - rounding * (self.scale + float(self.radii[i].max()))

    def least_norm(self, slack: float, start: Member, tolerance: float) -> Member | None:
        """The function of least norm, however large, with |g − f| ≤ r + slack; None if none is found."""
        rows, limits = start.rows, self.radii + slack
        for _ in range(ROUNDS):
            i, _ = self._read(rows)
            try:
                values, norm, _ = self._solve(rows, limits[i], None)
            except NumericalError:
                return None
            excess = self._excess(values)
            if excess.max() <= slack + tolerance:
                return Member(values, norm, float(excess.max()), -math.inf, rows)
            new = self._violated(excess, slack + 0.5 * tolerance, rows)
            if not len(new):
                break
            rows = np.union1d(rows, new)
        return None

    def _read(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
        """Points and sides of rows: side·(g − f) ≤ s + r."""
        return rows // 2, np.where(rows % 2 == 0, 1.0, -1.0)

    def _flat(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Positions of rows in an array of all upper, then all lower constraints."""
        return np.asarray(rows // 2 + len(self.X) * (rows % 2))

    def _excess(self, values: Array) -> Array:
        error = values - self.target
        return np.concatenate([error - self.radii, -error - self.radii])

    def _violated(self, excess: Array, level: float, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows to add: all violated ones if these are few, else the worst of each block."""
        flat = np.flatnonzero(excess > level)
        if len(flat) > max(2 * BLOCKS, len(rows) // 2):
            worst = self._worst(excess)
            return np.setdiff1d(worst[excess[self._flat(worst)] > level], rows)
        N = len(self.X)
        return np.setdiff1d(2 * (flat % N) + flat // N, rows)

    def _worst(self, excess: Array) -> NDArray[np.intp]:
        """The rows of largest excess in each block, one upper and one lower."""
        upper, lower = np.split(excess, 2)
        above = [2 * int(block[upper[block].argmax()]) for block in self._blocks]
        below = [2 * int(block[lower[block].argmax()]) + 1 for block in self._blocks]
        return np.array([*above, *below], dtype=np.intp)

    def _solve(self, rows: NDArray[np.intp], limits: Array, norm_bound: float | None) -> tuple[Array, float, Array]:
        """Minimise s, or ½‖w‖² if there is no norm bound, on a working set. Values everywhere, norm, multipliers."""
        import clarabel
        from scipy import sparse

        i, side = self._read(rows)
        distinct, where = np.unique(i, return_inverse=True)
        Phi, pivots = kernels.pivoted(self.kernel, self.X[distinct], INDEPENDENT * self.size)
        n, r, root = len(rows), Phi.shape[1], math.sqrt(self.size)
        A = side[:, None] * Phi[where] / root
        b = (side * self.target[i] + limits) / self.scale
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        # features of smooth kernels span seven orders of magnitude: the default regularisation would swamp small ones
        settings.static_regularization_constant, settings.iterative_refinement_max_iter = 1e-12, 50
        if norm_bound is None:
            problem = (sparse.identity(r, format="csc"), np.zeros(r), sparse.csc_matrix(A), b)
            cones = [clarabel.NonnegativeConeT(n)]
        else:
            cone = np.vstack([np.zeros((1, r + 1)), -np.eye(r, r + 1)])
            A = np.vstack([np.hstack([A, -np.ones((n, 1))]), cone])
            b = np.concatenate([b, [norm_bound * root / self.scale], np.zeros(r)])
            problem = (sparse.csc_matrix((r + 1, r + 1)), np.eye(r + 1)[r], sparse.csc_matrix(A), b)
            cones = [clarabel.NonnegativeConeT(n), clarabel.SecondOrderConeT(r + 1)]
        solution = clarabel.DefaultSolver(*problem, cones, settings).solve()
        status = str(solution.status)
        if status not in ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations"):
            raise NumericalError(
                f"the convex program ended with {status}; rescale the values and the norm bound to the order of one"
            )
        w = np.array(solution.x)[:r] * (self.scale / root)
        weights = linalg.solve_triangular(Phi[pivots], w, lower=True, trans="T") if r else w
        values = kernels.cross(self.kernel, self.X, self.X[distinct[pivots]]) @ weights
        return values, float(np.linalg.norm(w)), np.array(solution.z)[:n]
