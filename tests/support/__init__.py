"""What tests of several suites share: labs that start real programs, writers of runs, waiting."""
