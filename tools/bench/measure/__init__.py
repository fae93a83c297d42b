"""Measurements in fresh processes and under Airflow, and the results that were kept."""
