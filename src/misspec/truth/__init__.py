"""How wrong is the model? The best member of its class for a known truth, and certificates from data."""

from misspec.truth.certificates import (
    Averages,
    Bands,
    Diagnosis,
    certificate_of_bands,
    contradictions,
    diagnose,
    diagnoses,
    noise_from_repeats,
)
from misspec.truth.members import BestInClass, Profile, best_in_class, check_known, misspecification_profile

__all__ = [
    "Averages",
    "Bands",
    "BestInClass",
    "Diagnosis",
    "Profile",
    "best_in_class",
    "certificate_of_bands",
    "check_known",
    "contradictions",
    "diagnose",
    "diagnoses",
    "misspecification_profile",
    "noise_from_repeats",
]
