"""The method as published in LLMPrism (arXiv 2505.00342), one module per stage; `method.name = "published"` runs it."""
