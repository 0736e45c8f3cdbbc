"""Handwritten digits at several sites, with a defense of gradveil's as a client mod."""
