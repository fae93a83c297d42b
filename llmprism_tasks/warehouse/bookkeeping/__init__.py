"""Bookkeeping: which windows were expected and run, and which messages were sent."""
