"""Neighbours: one file each, imported only when it is used."""
