"""Code that several verbs share: parameters, output, error reports, signals, and reading the store."""
