"""What tests of penstock, ours and yours, are built on: contract suites and real servers."""
