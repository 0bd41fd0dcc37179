"""DAGs for Airflow 3."""
