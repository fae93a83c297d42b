"""What `llmprism doctor` looks at: one module per family of checks, each a pure function of what was found."""
