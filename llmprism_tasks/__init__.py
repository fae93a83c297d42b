"""llmprism: black-box diagnosis of LLM training from network flow records."""

__version__ = "0.1.0"
