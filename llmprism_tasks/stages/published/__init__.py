"""The method as LLMPrism (arXiv 2505.00342) published it, stage by stage: what `method.name = "published"` runs."""
