"""Takes the pictures of the README and the docs from the pages."""
