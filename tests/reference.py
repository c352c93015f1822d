"""Independent oracles: plain dense transcriptions of the formulas, with no code of the package's own."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

KERNELS = {
    "rbf": RBF(0.2),
    "linear": ConstantKernel(0.5) * DotProduct(sigma_0=0),
    "matern12": Matern(0.2, nu=0.5),
    "matern32": Matern(0.2, nu=1.5),
    "matern52": Matern(0.2, nu=2.5),
    "matern0.8": Matern(0.2, nu=0.8),
    "sum": ConstantKernel(0.5) * RBF([0.2, 0.5]) + ConstantKernel(0.25) * DotProduct(sigma_0=0),
    "product": RBF(0.3) * Matern(0.4, nu=1.5),
}


class Dense:
    """μ, σ², ζ by one solve over the distinct points: (K_U + λ diag(1/n)) W = k_U(x)."""

    def __init__(self, kernel, regularization, X, y, offset=0.0):
        self.kernel, self.offset, self.regularization = kernel, offset, regularization
        self.U, inverse, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
        self.counts = counts.astype(float)
        self.averages = np.bincount(inverse.ravel(), y - offset) / counts
        self.K = kernel(self.U, self.U.copy())
        self.A = self.K + np.diag(regularization / counts)

    def weights(self, X):
        return np.linalg.solve(self.A, self.kernel(self.U, X)).T

    def mean(self, X):
        return self.weights(X) @ self.averages + self.offset

    def variance(self, X):
        return self.kernel.diag(X) - np.einsum("nu,nu->n", self.weights(X), self.kernel(X, self.U))

    def norm1(self, X):
        return np.abs(self.weights(X)).sum(axis=1)

    def norm2(self, X):
        return np.sqrt((self.weights(X) ** 2 / self.counts).sum(axis=1))

    def log_det(self):
        # det(I_t + K_t/λ) = det(I_u + diag(n) K_U/λ)
        root = np.sqrt(self.counts)
        return np.linalg.slogdet(np.eye(len(self.U)) + root[:, None] * self.K * root / self.regularization)[1]


def design(rng, N, T, d=2):
    """Candidates with near-duplicates 1e-9 apart and exact ones, and a sequence that repeats many of them."""
    X = rng.random((N, d))
    X[5], X[7] = X[4] + 1e-9, X[6] - 1e-9
    X[9] = X[8]
    index = rng.integers(0, N, T)
    index[::3] = rng.integers(0, 12, len(index[::3]))
    y = np.sin(7 * X[index, 0]) + X[index, -1] + 0.1 * rng.standard_normal(T)
    return X, index, y
