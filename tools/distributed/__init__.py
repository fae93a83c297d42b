"""llmprism on several machines, tried on one: PostgreSQL, Redis, Airflow, and Celery workers with host names."""
