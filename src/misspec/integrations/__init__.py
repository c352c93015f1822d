"""Neighbours: one file each, imported only when used."""
