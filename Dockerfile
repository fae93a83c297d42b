# Airflow with the package and its DAGs. The slim image brings no providers, so that constraints.txt alone decides.
FROM apache/airflow:slim-3.3.2-python3.11
USER root
RUN install -d -o airflow -g root -m 0775 /data /opt/airflow/state /opt/llmprism
USER airflow
WORKDIR /opt/llmprism
COPY --chown=airflow:root pyproject.toml constraints.txt README.md ./
COPY --chown=airflow:root llmprism_tasks llmprism_tasks
COPY --chown=airflow:root sql sql
COPY --chown=airflow:root expectations expectations
RUN pip install --no-cache-dir -c constraints.txt -e '.[distributed]' && python -m llmprism_tasks.cli.compile_kernels && \
    python -m llmprism_tasks.warehouse.lake.extensions
WORKDIR /opt/airflow
COPY --chown=airflow:root dags dags
COPY --chown=airflow:root tools/demo/config config
