"""Shows the product on one machine: an Airflow of its own under `.demo/`, fed with simulated flows."""
