"""The platforms that are analysed, and their minutes as files."""
