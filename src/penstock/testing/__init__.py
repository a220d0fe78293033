"""What tests of penstock, ours and yours, are built on: contract suites, the fault harness, real servers."""
