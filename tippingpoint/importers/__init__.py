"""Imports results of other tools into run directories."""
