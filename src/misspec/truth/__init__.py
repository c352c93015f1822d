"""Misspecification of a model: the best member of its class for a known truth, and certificates from data."""

from misspec.truth.certificates import (
    Averages,
    Certificate,
    Diagnosis,
    OwnIntervals,
    certificate_of_bands,
    certified_conflicts,
    diagnose,
    diagnoses,
    noise_from_repeats,
)
from misspec.truth.members import BestInClass, Profile, best_in_class, check_known, misspecification_profile

__all__ = ["Averages", "BestInClass", "Certificate", "Diagnosis", "OwnIntervals", "Profile", "best_in_class"]
__all__ += ["certificate_of_bands", "certified_conflicts", "check_known", "diagnose", "diagnoses"]
__all__ += ["misspecification_profile", "noise_from_repeats"]
