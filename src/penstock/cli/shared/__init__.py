"""What verbs share: parameters, output, errors as people see them, signals, and reading the store."""
