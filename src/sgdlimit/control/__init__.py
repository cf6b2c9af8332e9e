"""Tolerance → work: what is asked, what makes it uncertain, what to do about it, when to stop."""
