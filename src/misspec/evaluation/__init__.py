"""Evaluating a user's function: who evaluates, and the loop around it."""
