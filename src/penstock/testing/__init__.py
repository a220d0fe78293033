"""What tests of penstock, ours and yours, are built on: contract suites, and a probe that halts a process."""
