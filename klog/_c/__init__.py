"""Cython declarations of csrc, one .pxd per header. Nothing here runs."""
